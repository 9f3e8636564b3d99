"""The decode loop: propose, verify, accept, commit. The target decides every token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter

from specedit.decoding.planner import Planner, agreeing
from specedit.decoding.sampling import Sampler
from specedit.decoding.statistics import Statistics
from specedit.proposers import Request
from specedit.targets import Target


def decode(
    target: Target,
    request: Request,
    sampler: Sampler,
    planner: Planner | None,
    *,
    max_tokens: int,
    ends: Callable[[int], bool],
    stats: Statistics,
) -> Iterator[tuple[list[int], str]]:
    """Yield the answer's tokens, one verified step at a time, and who drafted all but the last of them: a
    proposer's name, or "" for a step without a draft.

    This is speculative decoding as in Leviathan et al. 2023 (arXiv 2211.17192) with the acceptance rule of
    `sampling`: a drafted token is kept iff the target draws the same one at that position.

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

    target.reset()
    logits = target.extend(history, last_only=True)  # [1, vocab]
    emitted, name, draft = sampler.draw(logits, answer, []), "", list[int]()
    stats.prompt_tokens = len(history)
    stats.first_token = stats.plain = charge("prefill")
    if planner:
        planner.start(request, vocab_size=logits.shape[-1])
    charge("draft")

    while True:
        emitted, done = _cut(emitted, ends, max_tokens - len(answer))
        answer += emitted
        history += emitted
        stats.record(name, len(draft), agreeing(draft, emitted), len(emitted))
        charge("coordination")
        yield emitted, name
        charge(None)
        if done:
            return

        room = max_tokens - len(answer) - 1  # the target adds a token of its own to every draft
        name, draft = planner.propose(history, room) if planner else ("", [])
        charge("draft")

        logits = target.extend([history[-1], *draft])  # [1 + len(draft), vocab]
        emitted = sampler.draw(logits, answer, draft)  # the accepted part of the draft and one more
        target.rollback(1 + len(draft) - len(emitted))
        seconds = charge("verify")

        stats.target_calls += 1
        if planner:
            planner.learn(emitted, 1 + len(draft), seconds)
            stats.plain += len(emitted) * float(planner.cost(1)[0])
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
