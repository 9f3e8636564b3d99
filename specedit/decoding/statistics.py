"""What one request cost and where its tokens came from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import NamedTuple

from specedit.types import Tree, depths


class Rejected(NamedTuple):
    """A run of drafted tokens that the target did not write.

    Attributes:
        at: the token of the answer that stands where the run begins.
        name: who drafted it.
        tokens: the run.
    """

    at: int
    name: str
    tokens: list[int]


@dataclass
class Statistics:
    """Counts and times of one answer. All times are seconds.

    Attributes:
        prompt_tokens: tokens of the prompt.
        cached_tokens: of these, the first ones that an earlier request had scored.
        tokens: tokens of the answer, the end-of-sequence token included.
        target_calls: forward passes after the prefill.
        drafted: tokens that were verified, by proposer.
        accepted: of these, the ones the target would have written too.
        drafted_at, accepted_at: the same by position in the draft, the first token being 0. Where drafts
            part, several tokens have one position.
        sources: for each token of the answer who drafted it, or "target".
        rejected: what the target wrote otherwise.
        prefill: time for the prompt and the first token.
        draft: time for proposing and choosing.
        verify: time for scoring, drawing and rolling back.
        coordination: all other time of the loop; what the caller does between two steps is not counted.
        first_token: time from the start to the first token.
        plain: what plain decoding would have cost, by the measured cost of single-token steps.
        extra_memory: bytes of the device that decoding takes besides weights, keys and values, as far as it
            keeps them from one answer to the next.
    """

    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    target_calls: int = 0
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    drafted_at: Counter[int] = field(default_factory=Counter)
    accepted_at: Counter[int] = field(default_factory=Counter)
    sources: list[str] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    prefill: float = 0.0
    draft: float = 0.0
    verify: float = 0.0
    coordination: float = 0.0
    first_token: float = 0.0
    plain: float = 0.0
    extra_memory: int = 0

    @property
    def total(self) -> float:
        """Seconds from the start to the last token."""
        return self.prefill + self.draft + self.verify + self.coordination

    @property
    def decoding(self) -> float:
        """Seconds that were not the prefill's."""
        return self.total - self.prefill

    @property
    def speedup(self) -> float:
        """How many times as fast as plain decoding, by estimate, from the first token on."""
        return (self.plain - self.prefill) / max(self.decoding, 1e-9)

    def __add__(self, other: Statistics) -> Statistics:
        """Both answers together."""
        both = Statistics(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(Statistics)))
        both.extra_memory = max(self.extra_memory, other.extra_memory)
        return both

    @property
    def accepted_tokens(self) -> int:
        return self.accepted.total()

    @property
    def rejected_tokens(self) -> int:
        return self.drafted.total() - self.accepted_tokens

    def record(self, tree: Tree, path: Sequence[int], emitted: int) -> None:
        """Count one step that verified this tree, accepted this path in it and wrote `emitted` tokens."""
        accepted = path[1 : emitted + 1]
        names = [tree.names[position - 1] for position in accepted]
        places = [depth - 1 for depth in depths(tree.parents)[1:]]
        self.drafted.update(tree.names)
        self.accepted.update(names)
        self.drafted_at.update(places)
        self.accepted_at.update(range(len(accepted)))
        self.sources += names + ["target"] * (emitted - len(accepted))
        follows = 0  # the position that goes on with the latest rejected draft
        for position in sorted({*range(1, len(tree.tokens) + 1)} - {*path}):
            name, token = tree.names[position - 1], tree.tokens[position - 1]
            if position != follows or tree.parents[position - 1] != position - 1:
                self.rejected.append(Rejected(self.tokens + places[position - 1], name, []))
            self.rejected[-1].tokens.append(token)
            follows = position + 1
        self.tokens += emitted

    def as_dict(self) -> dict:
        """Plain values for JSON, with the usage fields of OpenAI's API among them."""
        sources = dict(self.accepted) | {"target": self.tokens - self.accepted_tokens}
        return {
            "prompt_tokens": self.prompt_tokens,
            "cached_tokens": self.cached_tokens,
            "completion_tokens": self.tokens,
            "accepted_prediction_tokens": self.accepted_tokens,
            "rejected_prediction_tokens": self.rejected_tokens,
            "target_calls": self.target_calls,
            "tokens_by_source": sources,
            "drafted_by_proposer": dict(self.drafted),
            "acceptance_by_position": {
                position: self.accepted_at[position] / drafted
                for position, drafted in sorted(self.drafted_at.items())
            },
            "seconds": {
                "total": self.total,
                "first_token": self.first_token,
                "prefill": self.prefill,
                "draft": self.draft,
                "verify": self.verify,
                "coordination": self.coordination,
                "plain_estimate": self.plain,
            },
            "extra_memory": self.extra_memory,
        }
