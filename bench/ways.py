"""The ways to decode one answer with one model, and what each of them takes."""

from __future__ import annotations

import copy
import os
import platform
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

import numpy as np
import torch
from torch import Tensor
from transformers import MinLengthLogitsProcessor

from specedit import SpecEditor
from specedit.decoding.cost import CostCurve
from specedit.decoding.loop import decode
from specedit.decoding.planner import MAX_DRAFT, Planner
from specedit.decoding.sampling import Sampler
from specedit.decoding.statistics import Statistics
from specedit.proposers import DEFAULT, Proposer, Request, create
from specedit.replay import Forced
from specedit.targets.hf import HFTarget
from specedit.targets.linear import pack
from specedit.types import Draft

# What each way is called in tables. The names of proposers joined by commas are ways, too.
NAMES = {
    "plain": "plain decoding",
    "specedit": "**specedit**",
    "nothing": "specedit, a proposer that finds nothing",
    "wrong": "specedit, a proposer that is always wrong",
    "knowing": "specedit, if it knew the answer",
    "transformers": "transformers `generate`",
    "lookup": "transformers `prompt_lookup_num_tokens=10`",
    "lookup32": "transformers `prompt_lookup_num_tokens=32, max_matching_ngram_size=16`",
    "assisted": "transformers `assistant_model`",
}
# The options of transformers' `generate`.
THEIRS = {
    "transformers": {},
    "lookup": {"prompt_lookup_num_tokens": 10},
    # The best of eleven settings, 10 after 2 to 128 after 16, counted on 19 edits under the float32 curve.
    "lookup32": {"prompt_lookup_num_tokens": 32, "max_matching_ngram_size": 16},
}


_LEARNING = ("specedit", "nothing", "knowing")
_COPIED = 1 << 30  # bytes; no cache holds them


class Nothing(Proposer):
    """Never finds anything."""

    name = "nothing"

    def propose(self, history: Sequence[int], limit: int) -> list[Draft]:
        return []


class Wrong(Proposer):
    """Always proposes 64 tokens that no answer has: the one that begins a message."""

    name = "wrong"

    def __init__(self, token: int) -> None:
        self._token = token

    def propose(self, history: Sequence[int], limit: int) -> list[Draft]:
        return [Draft([self._token] * min(64, limit), match=64)]


class Knowing(Proposer):
    """Knows the answer that was set last: nothing that drafts could do more.

    Attributes:
        answer: token ids.
    """

    name = "knowing"
    answer: Sequence[int] = ()

    def start(self, request: Request) -> None:
        self._prompt = len(request.prompt)

    def propose(self, history: Sequence[int], limit: int) -> list[Draft]:
        at = len(history) - self._prompt
        return [Draft(list(self.answer[at : at + limit]), match=MAX_DRAFT)]


class ForcedProcessor(MinLengthLogitsProcessor):
    """`specedit.replay.Forced` for transformers' `generate`: makes the tokens of an answer the likeliest.

    No other token is forbidden: look-up leaves forbidden tokens out of its drafts, and would so know the
    answer. As a MinLengthLogitsProcessor it is kept from an assistant model, which would know it, too.
    """

    def __init__(self, answer: Sequence[int], prompt: int) -> None:
        self._answer, self._prompt = answer, prompt

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        at = input_ids.shape[1] - self._prompt
        if at < len(self._answer):
            scores[:, self._answer[at]] = torch.finfo(scores.dtype).max
        return scores


class _Arrivals:
    """When tokens arrived: what `generate` takes for a streamer."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self._prompt = True

    def put(self, tokens: Tensor) -> None:
        if not self._prompt:
            self.add(tokens.numel())
        self._prompt = False

    def add(self, tokens: int) -> None:
        self.times += [perf_counter()] * tokens

    def end(self) -> None:
        pass


def editor_with(model, name: str, tokenizer) -> SpecEditor:
    """An editor as users get it: on a CPU with a packed copy, so that the model stays transformers'."""
    ours = copy.deepcopy(model) if model.device.type == "cpu" else model
    pack(ours)
    return SpecEditor(HFTarget(ours, name), tokenizer)


class Ways:
    """One model, and the ways to decode with it.

    `specedit`, `nothing` and `knowing` keep what they learn from answer to answer, as in one user's process,
    until `forget`; other ways meet every answer anew.

    Args:
        editor: its target decodes, in the ways that are ours.
        stock: the same model as transformers loads it, for its ways; by default the target's.
        assistant: another one, which drafts for it.

    Attributes:
        assisted: whether there is one.
        knowing: the proposer of the way of that name; whoever runs it sets the answer first.
    """

    def __init__(self, editor: SpecEditor, stock=None, assistant=None) -> None:
        self.target, self.tokenizer = editor.target, editor.tokenizer
        self._stock = stock or getattr(self.target, "model", None)
        # Measured anew: what is kept for the user was perhaps learnt beside other work.
        self._cost = CostCurve.measure(self.target)
        self.assisted = assistant is not None
        self.knowing = Knowing()
        self._theirs = THEIRS | ({"assisted": {"assistant_model": assistant}} if self.assisted else {})
        self.forget()

    def forget(self) -> None:
        """Start with planners that have learnt nothing."""
        self._planners = {way: self._planner(way) for way in _LEARNING}

    def forget_texts(self) -> None:
        """Let no answer profit from the texts of earlier ones."""
        for planner in self._planners.values():
            planner.forget()

    def run(
        self,
        way: str,
        request: Request,
        limit: int,
        sampler: Sampler,
        ends: Callable[[int], bool] = lambda token: False,
    ) -> tuple[list[int], dict]:
        """The tokens of the answer, and what they took.

        Args:
            way: one of `NAMES`, or names of proposers.
            limit: the most tokens.
            sampler: draws; transformers' ways are greedy, or force the answer of a `Forced` one.
            ends: called with every token; True ends the answer. transformers' ways end where the model does.
        """
        if way in self._theirs:
            return self._generate(way, request, limit, sampler)
        planner = self._planners.get(way) or self._planner(way)
        stats, answer, arrivals = Statistics(), list[int](), _Arrivals()
        begin = perf_counter()
        for tokens in decode(
            self.target, request, sampler, planner, max_tokens=limit, ends=ends, stats=stats
        ):
            arrivals.add(len(tokens))
            answer += tokens
        return answer, {
            **_times(begin, arrivals.times),
            "passes": 1 + stats.target_calls,
            **{part: getattr(stats, part) for part in ("prefill", "verify", "draft", "coordination")},
            "drafted": dict(stats.drafted),
            "accepted": dict(stats.accepted),
            "drafted_at": dict(stats.drafted_at),
            "accepted_at": dict(stats.accepted_at),
        }

    def _generate(self, way: str, request: Request, limit: int, sampler: Sampler) -> tuple[list[int], dict]:
        options: dict = dict(self._theirs[way])
        if isinstance(sampler, Forced):
            options["logits_processor"] = [ForcedProcessor(sampler.answer, len(request.prompt))]
        passes = 0

        def count(*_: object) -> None:
            nonlocal passes
            passes += 1

        hook = self._stock.register_forward_pre_hook(count)
        try:
            arrivals = _Arrivals()
            begin = perf_counter()
            ids = torch.tensor([request.prompt], device=self._stock.device)
            answer = self._stock.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                max_new_tokens=limit,
                do_sample=False,
                eos_token_id=sorted(self.target.eos_token_ids),
                pad_token_id=self.tokenizer.pad_token_id,
                streamer=arrivals,
                **options,
            )
            tokens = answer[0, len(request.prompt) :].tolist()
            return tokens, {**_times(begin, arrivals.times), "passes": passes}
        finally:
            hook.remove()

    def _planner(self, way: str) -> Planner | None:
        if way == "plain":
            return None
        made = {
            "nothing": [Nothing()],
            "knowing": [self.knowing],
            "wrong": [Wrong(self.tokenizer.bos_token_id)],
            "specedit": create(DEFAULT),
        }
        return Planner(made.get(way) or create(way.split(",")), copy.deepcopy(self._cost))

    def floor(self) -> dict:
        """What memory allows at most: every token needs all weights but the table of embeddings, unless that
        is the last layer, too. Bytes of these, and bytes a second at which memory is copied."""
        model = self._stock
        weights = {id(weight): weight.nbytes for weight in model.parameters()}
        table = model.get_input_embeddings().weight
        if table is not model.get_output_embeddings().weight:
            del weights[id(table)]
        source = torch.zeros(_COPIED, dtype=torch.uint8, device=model.device)
        target = torch.empty_like(source)
        seconds = []
        for _ in range(6):  # the first finds pages that were never touched
            begin = perf_counter()
            target.copy_(source)
            target[-1].item()  # waits for the device
            seconds.append(perf_counter() - begin)
        return {"bytes": sum(weights.values()), "bandwidth": 2 * _COPIED / min(seconds)}


def _times(begin: float, arrivals: list[float]) -> dict:
    """Seconds to the last token, to the first, and between tokens (p50, p95; a pass brings its at once)."""
    seconds = perf_counter() - begin
    between = np.percentile(np.diff(arrivals), (50, 95)).tolist() if len(arrivals) > 1 else [0.0, 0.0]
    return {"seconds": seconds, "first": arrivals[0] - begin, "between": between}


def described(target: HFTarget) -> dict:
    """The model and the machine."""
    device = target.model.device
    return {
        "model": target.name.split()[0],
        "dtype": str(target.model.dtype).removeprefix("torch."),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else device.type,
        "processor": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        **{package: version(package) for package in ("torch", "transformers", "specedit")},
    }


def processor() -> str:
    """The name of this machine's processor, and the widest instructions that torch uses on it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = names[0] if names else platform.processor() or platform.machine()
    return f"{name} with {torch.backends.cpu.get_cpu_capability()}"
