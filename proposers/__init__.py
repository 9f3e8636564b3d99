"""Proposers guess the tokens that come next. One file each; add one without touching the core.

    class Echo(Proposer):
        name = "echo"

        def propose(self, history, limit):
            return [Draft(list(history[-limit:]))]

Name the class in the entry-point group `specedit.proposers` of your package and it can be used by that name.
A proposer may be wrong as often as it likes: it costs time, never correctness.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import ClassVar

from specedit.types import Draft, SpecEditError

GROUP = "specedit.proposers"
DEFAULT = ("structural", "predicted", "ngram")


@dataclass(frozen=True, slots=True)
class Request:
    """What a proposer may know before the first token of an answer.

    Attributes:
        prompt: token ids of the prompt.
        references: texts that the answer may repeat, the most likely one first.
        encode: turns text into token ids of the target's vocabulary.
        decode: turns them back into text.
        language: of the first reference, as written after a code fence; "" if it is not known.
    """

    prompt: Sequence[int]
    references: Sequence[str]
    encode: Callable[[str], list[int]]
    decode: Callable[[Sequence[int]], str]
    language: str = ""


class Proposer(ABC):
    """Base of all proposers.

    Attributes:
        name: the name users switch it on by.
    """

    name: ClassVar[str]

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
    chosen = list(names)
    for name in chosen:
        if name not in known:
            raise SpecEditError(f"There is no proposer “{name}”: choose from {', '.join(available())}.")
    return [known[name] for name in chosen]


def create(names: Iterable[str]) -> list[Proposer]:
    """New proposers by name.

    Raises:
        SpecEditError: no installed package has a proposer of that name, or it does not import.
    """
    return [_load(point)() for point in find(names)]


def _load(point: EntryPoint) -> type[Proposer]:
    try:
        return point.load()
    except Exception as error:  # a broken package raises many kinds
        raise SpecEditError(
            f"The proposer “{point.name}” cannot be imported ({error}): reinstall the package that "
            "brings it, or leave it out."
        ) from error
