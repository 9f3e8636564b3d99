"""Replays known answers with somebody else's drafter. Runs in that peer's environment, without specedit."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence

# propose(written): token ids expected after the prompt and the tokens of the answer so far.
Propose = Callable[[Sequence[int]], Sequence[int]]


def replay(start: Callable[[Sequence[int]], Propose]) -> None:
    """For every case on standard input, print how many tokens each pass after the prefill scores.

    Args:
        start: makes a drafter for a prompt.
    """
    for line in sys.stdin:
        case = json.loads(line)
        answer, propose = case["answer"], start(case["prompt"])
        scored = []
        at = 1  # the prefill gives the first token
        while at < len(answer):
            draft = list(propose(answer[:at]))[: len(answer) - at - 1]
            right = 0
            while right < len(draft) and draft[right] == answer[at + right]:
                right += 1
            scored.append(1 + len(draft))
            at += right + 1
        print(json.dumps(scored), flush=True)
