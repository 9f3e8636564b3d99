"""The plain values that every layer passes around."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class SpecEditError(Exception):
    """Something the user can put right. The message is one sentence that says what to do."""


class Refused(SpecEditError):
    """The answer came, but taking it would harm the user's file. The file is untouched."""


class Cancelled(SpecEditError):
    """Somebody called `Stream.cancel`."""

    def __init__(self) -> None:
        super().__init__("The request was cancelled: begin it again if the answer is wanted.")


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn. The defaults are greedy decoding.

    Attributes:
        temperature: 0 takes the most likely token; above 0 samples.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set of tokens whose probability reaches this; 1 keeps all.
        min_p: drop tokens below this share of the most likely one's probability; 0 keeps all.
        repetition_penalty: divides positive and multiplies negative logits of tokens already seen in the
            prompt or answer (Keskar et al. 2019, arXiv 1909.05858); 1 is off.
        presence_penalty: subtracted once from the logit of a token already in the answer; 0 is off.
        frequency_penalty: subtracted per occurrence in the answer; 0 is off.
        logit_bias: added to the logits of these token ids.
        seed: what the draws depend on besides the model.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    seed: int = 0

    def __post_init__(self) -> None:
        numbers = [
            self.temperature,
            self.repetition_penalty,
            self.presence_penalty,
            self.frequency_penalty,
            *self.logit_bias.values(),
        ]
        checks = [
            (self.temperature == 0 or self.temperature >= 1e-6, "temperature must be 0, or 0.000001 or more"),
            (self.top_k >= 0, "top_k must be 0 (off) or more"),
            (0 < self.top_p <= 1, "top_p must be above 0 and at most 1"),
            (0 <= self.min_p <= 1, "min_p must be between 0 and 1"),
            (self.repetition_penalty > 0, "repetition_penalty must be above 0"),
            (self.seed >= 0, "seed must be 0 or more"),
            (all(map(math.isfinite, numbers)), "temperature, penalties and biases must be finite numbers"),
        ]
        for holds, message in checks:
            if not holds:
                raise SpecEditError(f"{message}.")


@dataclass(frozen=True, slots=True)
class Draft:
    """Tokens that a proposer expects next.

    Attributes:
        tokens: the expected token ids, nearest first; empty when there is nothing to propose.
        match: how many tokens of the history agreed with the source just before this draft: the evidence
            behind it. The planner measures what it is worth, so a proposer needs no probabilities. What was
            not found but computed has the most.
        kind: how the proposer came to it, where that makes a difference: each kind is measured apart.
        rivals: whether the tokens compete for the next place instead, the likeliest first.
    """

    tokens: list[int]
    match: int = 0
    kind: str = ""
    rivals: bool = False


@dataclass(frozen=True, slots=True)
class Tree:
    """What one forward pass verifies: drafts, merged where they begin alike.

    Position 0 of the pass is the last token of the history, and position i > 0 is `tokens[i - 1]`.

    Attributes:
        tokens: the drafted token ids, each after the one that it follows.
        parents: for each of them the position that it follows.
        names: who drafted each.
    """

    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    _children: dict[tuple[int, int], int] = field(default_factory=dict)

    def add(self, name: str, draft: Sequence[int]) -> None:
        """Merge a draft into the tree."""
        position = known = 0
        while known < len(draft) and (position, draft[known]) in self._children:
            position = self._children[position, draft[known]]
            known += 1
        new, begin = draft[known:], len(self.tokens) + 1
        places = range(begin, begin + len(new))
        parents = [position, *places][: len(new)]
        self._children.update(zip(zip(parents, new, strict=True), places, strict=True))
        self.tokens.extend(new)
        self.parents.extend(parents)
        self.names.extend([name] * len(new))

    def child(self, position: int, token: int) -> int | None:
        """Where this token follows that position."""
        return self._children.get((position, token))

    def stretch(self, position: int) -> int:
        """The end of the longest run of positions from this one on that follow one another."""
        end = position + 1
        while end <= len(self.tokens) and self.parents[end - 1] == end - 1:
            end += 1
        return end


def depths(parents: Sequence[int]) -> list[int]:
    """How many positions of a tree stand before position 0, 1, …, if these are the parents of 1, 2, …"""
    found = [0]
    for parent in parents:
        found.append(found[parent] + 1)
    return found


def agreeing(a: Sequence[int], b: Sequence[int]) -> int:
    """How many leading tokens of a and b are the same."""
    size = min(len(a), len(b))
    if a[:size] == b[:size]:
        return size
    return next((place for place in range(size) if a[place] != b[place]), size)
