"""Proposers guess the tokens that come next. One file each; add one without touching the core.

    class Echo(Proposer):
        name = "echo"

        def propose(self, history, limit):
            return [Draft(list(history[-limit:]))]

Name the class in the entry-point group `specedit.proposers` of your package and it can be used by that name.
A proposer may be wrong as often as it likes: it costs time, never correctness. It is made with what users
write after its name and a colon, if they do.
"""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, ClassVar

from specedit.types import Draft, SpecEditError

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

    from specedit.targets import Target

GROUP = "specedit.proposers"
DEFAULT = ("structural", "predicted", "ngram")
_READ = 1 << 16  # letters of references that are always read,
_READ_A_TOKEN = 8  # and of longer ones as many for every token of the prompt


@dataclass(frozen=True, slots=True)
class Request:
    """What a proposer may know before the first token of an answer.

    Attributes:
        prompt: token ids of the prompt.
        references: texts that the answer may repeat, the most likely one first.
        encode: turns text into token ids of the target's vocabulary.
        decode: turns them back into text.
        language: of the first reference, as written after a code fence; "" if it is not known.
        client: who asks. What one client's texts teach is not to be seen in another's answers, not even by
            how fast they come.
        ends: tokens that end an answer, the likeliest first.
        draw: the token that the target would draw from logits [1, vocab] after the tokens of an answer so
            far. Drafts that are drawn like that agree most often. None takes the likeliest.
    """

    prompt: Sequence[int]
    references: Sequence[str]
    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    language: str = ""
    client: str = ""
    ends: Sequence[int] = ()
    draw: Callable[[Tensor, Sequence[int]], int] | None = None

    @property
    def readable(self) -> int:
        """Letters of references that are worth reading: of files in the prompt all, and of others what takes
        next to no time beside the answer's passes."""
        return max(_READ, _READ_A_TOKEN * len(self.prompt))

    def text(self, history: Sequence[int], start: int) -> str:
        """What the tokens of a history from `start` on say. They are decoded after the one before: some
        tokenizers drop a space at the start of a text."""
        before = history[max(start - 1, 0) : start]
        return self.decode([*before, *history[start:]])[len(self.decode(before)) :]


class Proposer(ABC):
    """Base of all proposers.

    Attributes:
        name: the name users switch it on by.
        slow: whether drafting takes time that counts. It is then asked only where that is expected to pay.
    """

    name: ClassVar[str]
    slow: ClassVar[bool] = False

    def join(self, target: Target, tokenizer: PreTrainedTokenizerBase) -> None:  # noqa: B027
        """An editor takes this proposer on to draft for its model.

        Raises:
            SpecEditError: it cannot, for a reason that the user can put right.
        """

    def start(self, request: Request) -> None:  # noqa: B027 (most proposers need no more than the history)
        """A new answer begins. Forget the last one, or keep what may help the same client's next one."""

    def forget(self) -> None:  # noqa: B027 (most proposers keep nothing)
        """Forget what was kept from answer to answer."""

    @abstractmethod
    def propose(self, history: Sequence[int], limit: int) -> list[Draft]:
        """What is expected after `history`, which is the prompt and the answer so far: drafts of at most
        `limit` token ids that compete, the likeliest first.

        The history only ever grows between two calls, by the tokens that the target chose: what it says
        there is what became of the last draft.
        """


def available() -> list[str]:
    """The names in the entry-point group `specedit.proposers` of all installed packages."""
    return sorted(entry_points(group=GROUP).names)


def find(names: Iterable[str]) -> list[EntryPoint]:
    """Where the proposers of these names are, without importing them.

    Raises:
        SpecEditError: no installed package has a proposer of that name.
    """
    known = {point.name: point for point in entry_points(group=GROUP)}
    chosen = [name.partition(":")[0] for name in names]
    for name in chosen:
        if name not in known:
            raise SpecEditError(f"There is no proposer “{name}”: choose from {', '.join(available())}.")
    return [known[name] for name in chosen]


def create(names: Iterable[str]) -> list[Proposer]:
    """New proposers by name, or by name, colon and argument.

    Raises:
        SpecEditError: no installed package has a proposer of that name, it does not import, or it does not
            take that argument.
    """
    chosen = list(names)
    return [_create(point, name) for name, point in zip(chosen, find(chosen), strict=True)]


def _create(point: EntryPoint, name: str) -> Proposer:
    proposer: Callable[..., Proposer] = load(point)
    _, colon, argument = name.partition(":")
    try:
        inspect.signature(proposer).bind(*[argument] * bool(colon))
    except TypeError:
        advice = "takes no argument" if colon else f"needs an argument, as in {point.name}:…"
        raise SpecEditError(f"The proposer “{point.name}” {advice}.") from None
    return proposer(argument) if colon else proposer()


def load(point: EntryPoint) -> type[Proposer]:
    """Import a proposer.

    Raises:
        SpecEditError: it does not import.
    """
    try:
        return point.load()
    except Exception as error:  # a broken package raises many kinds
        raise SpecEditError(
            f"The proposer “{point.name}” cannot be imported ({error}): reinstall the package that "
            "brings it, or leave it out."
        ) from error
