"""What tests share: a tokenizer, a target that writes a given answer, a real model that knows a few edits."""

import hashlib
import inspect
import json
import os
from dataclasses import dataclass
from pathlib import Path

import hypothesis
import pytest
import tokenizers
import torch
import transformers
from filelock import FileLock
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from specedit import SpecEditor
from specedit.decoding.cost import CostCurve
from specedit.editing import SourceFile
from specedit.targets.replay import ReplayTarget

# How long an example takes says how busy the machine is.
hypothesis.settings.register_profile("patient", deadline=None)
hypothesis.settings.load_profile("patient")

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Edit:
    """A file, what to do with it, and what the model of `edit_model` answers.

    Attributes:
        answer: all that follows the opening fence, up to the token that ends the message. "endless" has none.
        new: the bytes that the file is to have afterwards; None when the answer must not be taken.
        encoding: of the file.
    """

    name: str
    old: bytes
    instruction: str
    answer: str
    new: bytes | None = None
    encoding: str = "utf-8"


_GREET = "def load(path):\n    return open(path).read()\n\n\nprint(load('a'))\n"
_RENAMED = _GREET.replace("load", "read_config")
EDITS = {
    "rename": Edit(
        "greet.py",
        _GREET.encode(),
        "Rename load to read_config.",
        f"{_RENAMED}```\nIt has a new name.",
        _RENAMED.encode(),
    ),
    "placeholder": Edit(
        "greet.py",
        _GREET.encode(),
        "Add a docstring.",
        "def load(path):\n    '''Read it.'''\n    # ... rest of the code unchanged\n```",
    ),
    "syntax": Edit("greet.py", _GREET.encode(), "Break it.", "def load(path:\n    return\n```"),
    "endless": Edit("greet.py", _GREET.encode(), "Go on forever.", "x = 1\n" * 25),
    "crlf": Edit("notes.txt", b"one\r\ntwo\r\nthree", "Say 2.", "one\n2\nthree\n````", b"one\r\n2\r\nthree"),
    "euro": Edit("price.txt", b"5 \xa3\n", "Use euros.", "5 \u20ac\n````", encoding="latin-1"),
    "same": Edit("same.txt", b"fine\n", "Fix it.", "fine\n````", b"fine\n"),
}


def pytest_configure(config):
    """Where several processes run tests, each has one core: two threads each would fight for them."""
    if hasattr(config, "workerinput"):
        os.environ["OMP_NUM_THREADS"] = "1"
        torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _cache_of_its_own(request, tmp_path_factory, monkeypatch):
    """No test touches the user's cache, but those of the default model, which they would else fetch again."""
    if request.node.get_closest_marker("model") is None:
        folder = tmp_path_factory.getbasetemp() / "specedit-cache"
        monkeypatch.setenv("SPECEDIT_CACHE", str(folder))


@pytest.fixture(scope="session")
def edits() -> dict[str, Edit]:
    """What the model of `edit_model` knows, by name."""
    return EDITS


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and ChatML's two control tokens."""
    letters = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(letters, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = ByteLevelDecoder()
    tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token="<|im_end|>",
        chat_template=CHATML,
        clean_up_tokenization_spaces=False,
    )


@pytest.fixture(scope="session")
def replay(tokenizer):
    """Makes editors whose model writes a given answer (text, or token ids) and ends.

    replay("x = 2\\n````").rewrite("x = 1\\n", "Say 2.").text == "x = 2\\n"
    """

    def make(answer: str | list[int], *, max_length: int | None = None, can_rollback: bool = True, **options):
        if isinstance(answer, str):
            answer = [*tokenizer(answer, split_special_tokens=True).input_ids, tokenizer.eos_token_id]
        target = ReplayTarget(answer, len(tokenizer), [tokenizer.eos_token_id], max_length)
        target.can_rollback = can_rollback
        flat = CostCurve([1.0] * 9)  # verifying many tokens costs what verifying one does: every draft pays
        return SpecEditor(target, tokenizer, **{"cost": flat} | options)

    return make


@pytest.fixture(scope="session")
def edit_model(request, replay, tokenizer, tmp_path_factory) -> Path:
    """The folder of a small Llama that knows `EDITS` by heart: learnt in 20 s, kept in pytest's cache."""
    lessons = []
    for edit in EDITS.values():
        source = SourceFile.from_text(edit.old.decode(edit.encoding).replace("\r\n", "\n"), edit.name)
        prompt = replay("").rewrite(source, edit.instruction).generation.prompt
        end = [] if edit is EDITS["endless"] else [tokenizer.eos_token_id]
        lessons.append((prompt, tokenizer(edit.answer).input_ids + end))

    versions = [torch.__version__, transformers.__version__, tokenizers.__version__]
    recipe = json.dumps([lessons, CHATML, inspect.getsource(_llama), inspect.getsource(_learn), versions])
    cache = getattr(request.config, "cache", None)
    parent = Path(cache.mkdir("edit_model")) if cache else tmp_path_factory.mktemp("edit_model")
    folder = parent / hashlib.sha256(recipe.encode()).hexdigest()[:16]
    with FileLock(parent / "lock"):  # tests run in several processes
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            _learn(lessons, _llama(tokenizer)).save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
            unfinished.rename(folder)
    return folder


@pytest.fixture(scope="session")
def llama():
    """llama(tokenizer): a small Llama with random weights, the same every time."""
    return _llama


def _llama(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,  # these two as in the default model
        max_position_embeddings=65536,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.eos_token_id,
    )
    return LlamaForCausalLM(config)


def _learn(lessons: list[tuple[list[int], list[int]]], model: LlamaForCausalLM) -> LlamaForCausalLM:
    """The model, taught to give each prompt its answer, greedily."""
    length = max(len(prompt) + len(answer) for prompt, answer in lessons)
    ids = torch.full((len(lessons), length), model.config.pad_token_id)
    wanted = torch.full((len(lessons), length), -100)  # -100: not asked for
    for row, (prompt, answer) in enumerate(lessons):
        ids[row, : len(prompt) + len(answer)] = torch.tensor(prompt + answer)
        wanted[row, len(prompt) : len(prompt) + len(answer)] = torch.tensor(answer)
    wanted = wanted[:, 1:]
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3, weight_decay=0.0)
    for _ in range(500):
        logits = model(input_ids=ids).logits[:, :-1]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), wanted.flatten())
        if loss < 0.01 and ((logits.argmax(-1) == wanted) | (wanted == -100)).all():
            return model.eval()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    raise AssertionError("the model did not learn its edits")
