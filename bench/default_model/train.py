"""Train the default model's adapter: `python bench/default_model/train.py --steps 2850 --decay 600`.

LoRA (Hu et al. 2021, arXiv 2106.09685) through peft on every linear layer of SmolLM2-135M-Instruct. One step
takes some parts of files and several edits of each, which share the part's tokens (see `loss.py`).
"""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import click
import torch
from tqdm import tqdm

sys.path.insert(0, str(Path(__file__).parents[2]))

from bench.default_model.dataset import Corpus, Edit
from bench.default_model.loss import ATTENTION, losses
from specedit import default_model
from specedit.decoding.encode import encode_chat, encode_text
from specedit.editing import build_prompt
from specedit.paths import cache_folder

RANK = 16
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
WORK = cache_folder() / "training"
EDITS = 5  # of one part of a file
PARTS = 2  # in a step
LONGEST = 2400  # tokens of a prompt and its answer
MOST = 2400  # tokens of the answers to one part, which bounds the memory


@dataclass(frozen=True, slots=True)
class Example:
    """An edit in tokens.

    Attributes:
        prompt: the whole prompt, up to where the answer begins.
        answer: what the model should write, the end token included.
        changed: for each token of the answer, whether it differs from the file before, or decides where the
            copy goes on after a difference.
    """

    edit: Edit
    prompt: list[int]
    answer: list[int]
    changed: list[bool]


def encode(tokenizer, edit: Edit) -> Example:
    asked = build_prompt(edit.text, edit.instruction, edit.name)
    prompt = encode_chat(tokenizer, asked.messages, asked.prefill)
    answer = encode_text(tokenizer, edit.after + asked.fence)
    before = encode_text(tokenizer, edit.text + asked.fence)
    changed = [False] * (len(answer) + 1)
    matcher = difflib.SequenceMatcher(None, before, answer, autojunk=False)
    for tag, _, _, start, end in matcher.get_opcodes():
        if tag != "equal":
            changed[start : end + 1] = [True] * (min(end + 1, len(changed)) - start)
    return Example(edit, prompt, [*answer, tokenizer.eos_token_id], changed)


def shorten(example: Example, rng: Random) -> Example:
    """The answer up to a little after its last change: the rest is only more copying, and costs as much."""
    last = max((i for i, changed in enumerate(example.changed) if changed), default=len(example.answer))
    end = last + rng.randint(8, 40)
    return Example(example.edit, example.prompt, example.answer[:end], example.changed[:end])


def weights(example: Example, total: float) -> list[float]:
    """What each token of the answer weighs: a copied one 1, the changed ones about `total` together.

    One token decides whether a line is deleted, and a hundred write a docstring: neither may drown the other.
    A heavy weight teaches changing fast, and also to change where nothing should be: lower it to the end.
    """
    heavy = min(max(total / max(1, sum(example.changed)), 1.0), 20.0)
    return [heavy if changed else 1.0 for changed in example.changed]


def load_model(adapter: Path | None, trainable: bool):
    """The base model in bfloat16 with a LoRA adapter: a new one, or the one in the folder `adapter`."""
    from peft import LoraConfig, PeftModel, get_peft_model
    from transformers import AutoModelForCausalLM

    base = AutoModelForCausalLM.from_pretrained(
        default_model.ensure(print, default_model.PLAIN), dtype=torch.bfloat16, attn_implementation=ATTENTION
    )
    if adapter is None:
        config = LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules=TARGETS, task_type="CAUSAL_LM")
        return get_peft_model(base, config)
    return PeftModel.from_pretrained(base, adapter, is_trainable=trainable)


@torch.no_grad()
def exact_share(model, examples: list[list[Example]]) -> dict[str, list[bool]]:
    """Which held-out edits come out token for token, by kind.

    An answer is right if each of its tokens is the most likely one after those before it: what greedy
    decoding would write, found in one pass.
    """
    found: dict[str, list[bool]] = {}
    for group in tqdm(examples, "held out", leave=False):
        with torch.autocast("cpu", torch.bfloat16):
            _, hits = losses(model, [group])
        for example, hit in zip(group, hits.split([len(e.answer) for e in group]), strict=True):
            found.setdefault(example.edit.kind, []).append(bool(hit.all()))
    return found


def groups(tokenizer, corpus: Corpus, rng: Random, lines: Sequence[int] = ()):
    """Endless examples, those of one file in a list."""
    while True:
        group = [encode(tokenizer, edit) for edit in corpus.group(rng, EDITS, lines)]
        group = [example for example in group if len(example.prompt) + len(example.answer) <= LONGEST]
        while sum(len(example.answer) for example in group) > MOST:
            group.pop()
        if group:
            yield group


@click.command()
@click.option("--steps", default=1000, help="Where to stop, those of earlier runs included.")
@click.option(
    "--decay", default=0, help="Over how many of the last steps the learning rate falls to nothing."
)
@click.option("--rate", default=6e-4, help="Learning rate.")
@click.option("--weight", default=3.0, help="Of an edit's changed tokens in the loss; a copied one has 1.")
@click.option("--whole", default=0.6, help="Share of the answers that are learnt to their end.")
@click.option("--lines", type=int, multiple=True, help="Lengths of the parts of files; all if not given.")
@click.option("--every", default=50, help="Steps between checkpoints.")
@click.option("--judge", default=250, help="Steps between looks at held-out edits; 0 for never.")
@click.option("--out", type=click.Path(path_type=Path), default=WORK, show_default=True)
def main(
    steps: int,
    decay: int,
    rate: float,
    weight: float,
    whole: float,
    lines: tuple[int, ...],
    every: int,
    judge: int,
    out: Path,
):
    """Train, from the last checkpoint in the folder OUT if there is one."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(default_model.ensure(print, default_model.PLAIN))
    torch.manual_seed(0)
    checkpoint, state = out / "checkpoint", out / "state.pt"
    model = load_model(checkpoint if state.exists() else None, trainable=True)
    learnt = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in learnt:
        parameter.data = parameter.data.float()
    optimizer = torch.optim.AdamW(learnt, lr=rate, betas=(0.9, 0.99), weight_decay=0.0)
    done = 0
    if state.exists():
        saved = torch.load(state)
        optimizer.load_state_dict(saved["optimizer"])
        done = saved["step"]

    held_out = []
    if judge:
        stream = groups(tokenizer, Corpus("held_out"), Random(0))
        held_out = [next(stream) for _ in range(40)]
    corpus = Corpus("train")
    bar = tqdm(range(done, steps), "training", initial=done, total=steps)
    shown: dict[str, float] = {}
    for step in bar:
        # Every step has its own seed, so that a resumed run sees what an uninterrupted one would have seen.
        rng = Random(step)
        stream = groups(tokenizer, corpus, rng, lines)
        warm = min(1.0, (step + 1) / 20)
        falling = min(1.0, (steps - step) / decay) if decay else 1.0
        for setting in optimizer.param_groups:
            setting["lr"] = rate * warm * falling
        files = [[e if rng.random() < whole else shorten(e, rng) for e in next(stream)] for _ in range(PARTS)]
        examples = [example for group in files for example in group]
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = losses(model.base_model.model, files)
        heavy = torch.tensor([w for example in examples for w in weights(example, weight)])
        (loss @ heavy / heavy.sum()).backward()
        changed = torch.tensor([c for example in examples for c in example.changed])
        for name, part in (("changed", loss[changed]), ("copied", loss[~changed])):
            if len(part):
                mean = part.mean().item()
                shown[name] = shown.get(name, mean) + 0.06 * (mean - shown.get(name, mean))
        torch.nn.utils.clip_grad_norm_(learnt, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        bar.set_postfix({name: f"{value:.3f}" for name, value in shown.items()})
        last = step + 1 == steps
        if last or (step + 1) % every == 0:
            model.save_pretrained(checkpoint)
            torch.save({"optimizer": optimizer.state_dict(), "step": step + 1}, state)
            note(out, {"step": step + 1, "lr": setting["lr"], **shown, "seconds": bar.format_dict["elapsed"]})
        if held_out and (last or (step + 1) % judge == 0):
            exact = exact_share(model.base_model.model, held_out)
            right = sum(map(sum, exact.values()))
            note(out, {"step": step + 1, "exact": right, "of": sum(map(len, exact.values())), "kinds": exact})
            tqdm.write(f"step {step + 1}: {right} of {sum(map(len, exact.values()))} held-out edits exact")


def note(out: Path, entry: dict) -> None:
    with (out / "log.jsonl").open("a") as log:
        log.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    main()
