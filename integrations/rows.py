"""The answers that a serving engine decodes together, and what to draft for each."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from specedit.decoding.cost import CostCurve, FixedCost
from specedit.decoding.planner import Planner
from specedit.integrations.prompts import request_for
from specedit.proposers import DEFAULT, Request, create
from specedit.targets.batch import SharedCost
from specedit.types import SpecEditError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Tokens: TypeAlias = Sequence[int] | np.ndarray
logger = logging.getLogger("specedit")
_MOST = 64  # references of a request that are read
# What passes over 1, 2, 4, … 256 tokens cost before any is timed, as multiples of the first: on a GPU, which
# reads its weights meanwhile, and on a CPU.
_SHAPES = {"cuda": (1, 1, 1, 1, 1, 1, 1.1, 1.3, 1.8), "cpu": (1, 1.2, 1.4, 1.8, 2.4, 3.4, 5, 8, 14)}
_FREE = FixedCost([1.0] * 9)


class Row(NamedTuple):
    """A request in a step of the engine.

    Attributes:
        key: of the request, in every step the same.
        tokens: what it has so far, the prompt included.
        prompt: how many of these are the prompt; matters when the key is new.
        room: how long the draft may be.
        about: what the request says beside its prompt: `specedit_prediction`, `specedit_references`,
            `specedit_language`, and `specedit_client`, whose requests learn from each other.
    """

    key: object
    tokens: Tokens
    prompt: int
    room: int
    about: Mapping[str, Any] = {}


class Rows:
    """Drafts for every row of a step, as long as they pay for the rows that share its passes.

    Args:
        tokenizer: of the model; without it only tokens of the prompt are repeated.
        vocabulary: token ids are below this.
        device: what kind computes the passes, "cuda" or "cpu".
        most: as many answers are remembered, those of the latest steps.
        proposers: who guesses.
        padded: whether the engine scores as many tokens for every row, however few are drafted.

    Raises:
        SpecEditError: a proposer does not exist, or needs the target.
    """

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerBase | None,
        vocabulary: int,
        device: str,
        most: int,
        proposers: Iterable[str] = DEFAULT,
        padded: bool = False,
    ) -> None:
        made = create(proposers)
        for proposer in made:
            if proposer.slow:
                raise SpecEditError(
                    f"{proposer.name} does not work inside a serving engine: leave it out of the proposers."
                )
        self._tokenizer = tokenizer
        self._vocabulary = vocabulary
        self._most = most
        self._pace = _Pace(_FREE if padded else CostCurve(_SHAPES.get(device, _SHAPES["cuda"])))
        self._planner = Planner(made, _Unlearning(self._pace, self._pace.cost))
        self._answers = OrderedDict[object, _Answer]()

    def find(self, tokens: Tokens) -> object | None:
        """The key of an answer that goes on in these tokens, for engines that do not name their rows. Answers
        that agree can stand for each other."""
        going = (key for key, answer in reversed(self._answers.items()) if answer.goes_on_in(tokens))
        return next(going, None)

    def forget(self, key: object) -> None:
        """The answer with this key is over: another may have the same."""
        self._answers.pop(key, None)

    def draft(self, rows: Sequence[Row | None]) -> list[list[int]]:
        """A draft for each row of a step. An error costs a draft, never the step.

        Args:
            rows: None for one whose prompt is still being read.
        """
        begun = perf_counter()
        drafts: list[list[int]] = [[] for _ in rows]
        busy = [(number, row) for number, row in enumerate(rows) if row]
        self._pace.sharing = max(len(busy), 1)
        answers, known = list[_Answer](), len(busy) == len(rows)
        for number, row in busy:
            try:
                known &= row.key in self._answers
                answer = self._answer(row)
                drafts[number] = answer.draft(row.room)
                answers.append(answer)
            except Exception:
                known = False
                logger.exception("specedit drafts nothing for a request in this step")
        self._pace.step(answers, known, begun)
        while len(self._answers) > self._most:
            self._answers.popitem(last=False)
        return drafts

    def _answer(self, row: Row) -> _Answer:
        """The answer in a row, told of its new tokens."""
        answer = self._answers.get(row.key)
        if answer is None or not answer.may_go_on_in(row.tokens):
            request = self._request(row)
            answer = self._answers[row.key] = _Answer(self._planner.fork(), request, self._vocabulary)
        answer.learn(row.tokens)
        self._answers.move_to_end(row.key)
        return answer

    def _request(self, row: Row) -> Request:
        def said(name: str, default: str = "") -> str:
            given = row.about.get(f"specedit_{name}")
            return given if isinstance(given, str) else default

        # Clients can write what they like: what is none of it is left out.
        references = row.about.get("specedit_references")
        texts = references[:_MOST] if isinstance(references, list) else []
        return request_for(
            list(map(int, row.tokens[: row.prompt])),
            self._tokenizer,
            said("prediction"),
            [text for text in texts if isinstance(text, str)],
            said("language"),
            # Who does not say whose a request is, gets no help of others' answers for it.
            client=said("client", f"request {row.key}"),
        )


class _Answer:
    """An answer that a row is getting."""

    def __init__(self, planner: Planner, request: Request, vocabulary: int) -> None:
        self._planner = planner
        self._history = list(request.prompt)
        self.scored = 0  # tokens of its latest step
        planner.start(request, vocabulary, branching=False)

    def may_go_on_in(self, tokens: Tokens) -> bool:
        """Whether these can be its tokens with new ones after them, by its first and its last."""
        length, ends = len(self._history), (self._history[0], self._history[-1])
        return length < len(tokens) and (tokens[0], tokens[length - 1]) == ends

    def goes_on_in(self, tokens: Tokens) -> bool:
        """Whether these are its tokens with new ones after them."""
        return self.may_go_on_in(tokens) and list(tokens[: len(self._history)]) == self._history

    def learn(self, tokens: Tokens) -> None:
        emitted = [int(token) for token in tokens[len(self._history) :]]
        if self.scored:
            self._planner.learn(emitted, self.scored, 0.0)
        self._history += emitted

    def draft(self, limit: int) -> list[int]:
        tokens = self._planner.propose(self._history, max(limit, 0)).tokens
        self.scored = 1 + len(tokens)
        return tokens


class _Pace:
    """What steps cost, by how many tokens they score.

    Attributes:
        cost: in units of what a token costs by itself.
        sharing: how many rows share a step now.
    """

    def __init__(self, cost: CostCurve) -> None:
        self.cost = cost
        self.sharing = 1
        self._largest = len(self.cost(256))
        self._unit = 0.0  # seconds, of the first step that was timed
        self._latest: list[_Answer] = []
        self._tokens = 0
        self._ended = perf_counter()

    def step(self, answers: list[_Answer], known: bool, begun: float) -> None:
        """A step ended at `begun` that brought these answers tokens; with `known`, the latest drafts of the
        same ones were all that it scored."""
        seconds = begun - self._ended
        if known and answers == self._latest and 0 < self._tokens <= self._largest:
            self._unit = self._unit or seconds / self.cost(self._tokens)[-1]
            self.cost.learn(self._tokens, seconds / self._unit)
        self._latest, self._tokens = answers, sum(answer.scored for answer in answers)
        self._ended = perf_counter()


class _Unlearning(SharedCost):
    """What a row pays. What steps cost, they teach once for all rows."""

    def learn(self, tokens: int, seconds: float) -> None:
        pass
