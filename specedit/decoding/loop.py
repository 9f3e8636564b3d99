"""The decode loop: propose, verify, accept, commit. The target decides every token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter

from specedit.decoding.planner import Planner
from specedit.decoding.sampling import Sampler
from specedit.decoding.statistics import Statistics
from specedit.proposers import Request
from specedit.targets import Target
from specedit.types import Tree

_NOTHING = Tree()


def decode(
    target: Target,
    request: Request,
    sampler: Sampler,
    planner: Planner | None,
    *,
    max_tokens: int,
    ends: Callable[[int], bool],
    stats: Statistics,
) -> Iterator[list[int]]:
    """Yield the answer's tokens, one verified step at a time.

    This is speculative decoding as in Leviathan et al. 2023 (arXiv 2211.17192) with trees of drafts as in
    Miao et al. 2023 (SpecInfer, arXiv 2305.09781) and the acceptance rule of `sampling`: a drafted token is
    kept iff the target draws the same one at that position.

    Args:
        target: scores tokens; its context is replaced.
        request: the prompt and what proposers may know.
        sampler: draws the target's tokens; made for this prompt.
        planner: says what to verify and learns from the outcome; None decodes plainly.
        max_tokens: the longest answer, in tokens; at least 1.
        ends: called with every token of the answer in order; True makes that token the last.
        stats: filled in as the answer grows.

    Raises:
        ValueError: there is a planner, and the target cannot roll back.
        SpecEditError: memory runs out, the logits overflow, or `logit_bias` names a token that there is not.
    """
    charge = _Clock(stats).charge
    history = list(request.prompt)
    answer: list[int] = []
    if planner and not target.can_rollback:
        raise ValueError(f"{target.name} cannot roll back: decode it without a planner")

    branching = planner is not None and target.can_branch
    target.reset()
    logits = target.extend(history, last_only=True)  # [1, vocab]
    charge("prefill")
    if planner:  # a GPU is still computing
        planner.start(request, vocab_size=logits.shape[-1], branching=branching)
    charge("draft")
    tree = _NOTHING
    emitted, path = sampler.draw(logits, answer, tree)
    charge("prefill")
    stats.prompt_tokens = len(history)
    stats.plain, stats.first_token = stats.prefill, stats.total

    while True:
        emitted, done = _cut(emitted, ends, max_tokens - len(answer))
        answer += emitted
        history += emitted
        stats.record(tree, path, len(emitted))
        charge("coordination")
        yield emitted
        charge(None)
        if done:
            return

        room = max_tokens - len(answer) - 1  # the target adds a token of its own to every draft
        tree = planner.propose(history, room) if planner else _NOTHING
        charge("draft")

        logits = target.extend([history[-1], *tree.tokens], tree.parents)  # [1 + len(tree.tokens), vocab]
        emitted, path = sampler.draw(logits, answer, tree)  # the accepted tokens and one more
        target.keep(path)
        seconds = charge("verify")

        stats.target_calls += 1
        if planner:
            planner.learn(emitted, 1 + len(tree.tokens), seconds)
            # Of all tokens by what is known of the cost now.
            stats.plain = stats.prefill + (len(answer) + len(emitted) - 1) * float(planner.cost(1)[0])
        else:
            stats.plain += seconds


def _cut(emitted: list[int], ends: Callable[[int], bool], room: int) -> tuple[list[int], bool]:
    """The tokens up to the first that ends the answer, and whether it is done."""
    for kept, token in enumerate(emitted, start=1):
        if ends(token) or kept == room:
            return emitted[:kept], True
    return emitted, False


class _Clock:
    """Charges the time since the last charge to a field of the statistics, or to nothing."""

    def __init__(self, stats: Statistics) -> None:
        self._stats = stats
        self._mark = perf_counter()

    def charge(self, field: str | None) -> float:
        now = perf_counter()
        seconds, self._mark = now - self._mark, now
        if field:
            setattr(self._stats, field, getattr(self._stats, field) + seconds)
        return seconds
