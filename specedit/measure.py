"""Whether speculation pays on edits that were made already: the design's decision rule in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from statistics import median
from typing import TypeVar

from specedit.decoding.cost import CostCurve
from specedit.decoding.encode import encode_chat, encode_text, make_request
from specedit.decoding.planner import Planner
from specedit.decoding.statistics import Statistics
from specedit.editing.diff import share_of_new_lines, split_lines
from specedit.editing.languages import language_of
from specedit.editing.prompt import build_prompt
from specedit.editor import SpecEditor
from specedit.history import PastEdit
from specedit.proposers import Request
from specedit.replay import count, fewest_passes, replay
from specedit.types import SpecEditError

T = TypeVar("T")
TIMED_TOKENS = 200  # of an answer that the model really decodes, to check the counting


@dataclass(frozen=True)
class Measured:
    """What one edit takes.

    Attributes:
        edit: which.
        lines: of the file after it.
        changed: the share of these that it wrote anew.
        ways: counts and times, by the proposers that guess, as `--proposers` takes them.
        fewest: the passes that a perfect copier would need.
    """

    edit: PastEdit
    lines: int
    changed: float
    ways: dict[str, Statistics]
    fewest: int

    def as_dict(self) -> dict:
        """Plain values for JSON; no line of the file is among them."""
        ways = {way: stats.as_dict() for way, stats in self.ways.items()}
        about = {"commit": self.edit.commit, "path": self.edit.path, "lines": self.lines}
        return about | {"changed": self.changed, "fewest_passes": self.fewest, "ways": ways}


class Meter:
    """Replays edits: the answer is known, the proposers guess it, a pass costs what it takes on this model.

    Args:
        editor: has the model.
        proposers: names of its proposers, which are compared: all together, and each alone.

    Attributes:
        about: the model and the machine.

    Raises:
        SpecEditError: the model cannot roll back, so that speculation does not apply.
    """

    def __init__(self, editor: SpecEditor, proposers: Sequence[str]) -> None:
        self._target, self._tokenizer = editor.target, editor.tokenizer
        if not self._target.can_rollback:
            raise SpecEditError(
                f"{self._target.name} keeps a state that cannot be rolled back, so it is always decoded "
                "plainly: measure another model."
            )
        # Measured anew: what is kept was perhaps learnt beside other work.
        self._cost = CostCurve.measure(self._target).fixed()
        self.about = {"model": self._target.name, "processor": self._target.processor}
        alone = {name: [proposer] for name, proposer in zip(proposers, editor.proposers, strict=True)}
        self._ways = {",".join(proposers): list(editor.proposers)} | alone
        self._planners = {way: Planner(chosen, self._cost) for way, chosen in self._ways.items()}

    def measure(self, edit: PastEdit) -> Measured | None:
        """Count what the edit takes; None if it is too long for the model's context."""
        request, answer = self._encode(edit)
        if (
            self._target.max_length is not None
            and len(request.prompt) + len(answer) > self._target.max_length
        ):
            return None
        ways = {}
        for way, planner in self._planners.items():
            planner.forget()  # what came before: this answer, and later versions of this file
            ways[way] = count(request, answer, planner, self._cost)
        changed = share_of_new_lines(edit.before, edit.after)
        return Measured(edit, len(split_lines(edit.after)), changed, ways, fewest_passes(request, answer))

    def time(self, edit: PastEdit, way: str) -> tuple[float, float]:
        """How many times as fast as plain decoding the beginning of the edit's answer is written.

        Returns:
            timed (every token is paid for with a pass of the model), and counted.
        """
        request, answer = self._encode(edit)
        answer = answer[:TIMED_TOKENS]

        def planner() -> Planner:
            fresh = Planner(self._ways[way], self._cost)
            fresh.forget()
            return fresh

        counted = count(request, answer, planner(), self._cost)
        plain = replay(self._target, request, answer, None)
        fast = replay(self._target, request, answer, planner())
        return plain.decoding / fast.decoding, counted.speedup

    def _encode(self, edit: PastEdit) -> tuple[Request, list[int]]:
        """What `SpecEditor.rewrite` asks with the commit's message, and the answer that makes the edit."""
        asked = build_prompt(edit.before, edit.message, PurePath(edit.path).name)
        prompt = encode_chat(self._tokenizer, asked.messages, asked.prefill)
        newline = "" if edit.after.endswith("\n") else "\n"
        references = [edit.before] if edit.before else []
        request = make_request(self._tokenizer, prompt, references, language_of(edit.path))
        return request, self._text(f"{edit.after}{newline}{asked.fence}")

    def _text(self, text: str) -> list[int]:
        return encode_text(self._tokenizer, text)


@dataclass
class Report:
    """What was measured, and what follows from it.

    Attributes:
        about: the repository, the model and the machine.
        left_out: how many files were not measured, by reason.
        edits: those that were.
        timed: some edits, and how many times as fast as plain decoding: timed and counted.
    """

    about: dict[str, str]
    left_out: Counter[str]
    edits: list[Measured] = field(default_factory=list)
    timed: list[tuple[PastEdit, float, float]] = field(default_factory=list)

    def add(self, measured: Measured | None) -> None:
        """What `Meter.measure` found."""
        if measured:
            self.edits.append(measured)
        else:
            self.left_out["too long for the model's context"] += 1

    def sample(self, size: int) -> list[PastEdit]:
        """Edits to be timed, from all over."""
        return [measured.edit for measured in sample(self.edits, size)]

    @property
    def best(self) -> str:
        """The fastest way."""
        return next(iter(self.totals()))

    def totals(self) -> dict[str, Statistics]:
        """All edits together, by way; the fastest way first."""
        ways = {}
        for way in self.edits[0].ways if self.edits else ():
            # Who drafted each token is not asked for all edits together.
            each = (replace(measured.ways[way], sources=[], rejected=[]) for measured in self.edits)
            ways[way] = sum(each, Statistics())
        return dict(sorted(ways.items(), key=lambda item: -item[1].speedup))

    def as_dict(self) -> dict:
        """Plain values for JSON."""
        totals = self.totals()
        best = next(iter(totals.items()), None)
        return {
            **self.about,
            "settings": _settings(*best) if best else None,
            "decision": self._decision(best[1]) if best else None,
            "ways": {way: total.as_dict() for way, total in totals.items()},
            "fewest_passes": sum(measured.fewest for measured in self.edits),
            "left_out": dict(self.left_out),
            "timed": [
                {"commit": edit.commit, "path": edit.path, "timed": timed, "counted": counted}
                for edit, timed, counted in self.timed
            ],
            "edits": [measured.as_dict() for measured in self.edits],
        }

    def findings(self) -> list[tuple[str, str]]:
        """The same for people: what a line is about, and what it says."""
        left_out = ", ".join(f"{n:,} {reason}" for reason, n in self.left_out.most_common())
        found = [("edits", f"{len(self.edits):,}" + (f" (files left out: {left_out})" if left_out else ""))]
        totals = self.totals()
        if not totals:
            return found
        way, total = next(iter(totals.items()))
        decision = self._decision(total)
        pays = decision["pays"]
        sign, verdict = ("<", "speculation pays") if pays else ("≥", "speculation does not pay")
        draft, verify, coordination, plain = (
            f"{decision[f'{part}_ms_per_token']:.1f}" for part in ("draft", "verify", "coordination", "plain")
        )
        terms = f"draft {draft} + verify {verify} + coordination {coordination}"
        together = f"{decision['ms_per_token']:.1f} ms a token {sign} {plain} plainly"
        copier = decision["copier_tokens_per_call"]
        middle = median(measured.ways[way].speedup for measured in self.edits)
        sources = total.accepted + Counter({"the model": total.tokens - total.accepted_tokens})
        found += [
            ("decision", f"{terms} = {together}: {verdict}"),
            ("speed-up", f"{total.speedup:.2f}× in decoding, half of the edits {middle:.2f}× or more"),
            ("tokens a call", f"{decision['tokens_per_call']:.1f}; a perfect copier's: {copier:.1f}"),
            ("best settings", _settings(way, total)),
            ("each way", ", ".join(f"{name} {t.speedup:.2f}×" for name, t in totals.items())),
            ("tokens from", ", ".join(f"{who} {n / total.tokens:.0%}" for who, n in sources.most_common())),
        ]
        for measured in sorted(self.edits, key=lambda measured: measured.ways[way].speedup)[:3]:
            edit, gain = measured.edit, measured.ways[way].speedup
            found.append(
                ("gained least", f"{gain:.2f}× {edit.path} in {edit.commit}, {measured.changed:.0%} new")
            )
        if self.timed:
            pairs = ", ".join(f"{timed:.2f}× (counted {counted:.2f}×)" for _, timed, counted in self.timed)
            found.append(("timed", f"the first {TIMED_TOKENS} tokens of some edits: {pairs}"))
        return found

    def _decision(self, total: Statistics) -> dict[str, float | bool]:
        """The design's decision rule: what a token costs, but for the first, which comes with the prompt."""
        later = total.tokens - len(self.edits)

        def ms(seconds: float) -> float:
            return 1000 * seconds / later

        return {
            "pays": total.speedup > 1,
            "speedup": total.speedup,
            "ms_per_token": ms(total.decoding),
            "plain_ms_per_token": ms(total.plain - total.prefill),
            "draft_ms_per_token": ms(total.draft),
            "verify_ms_per_token": ms(total.verify),
            "coordination_ms_per_token": ms(total.coordination),
            "tokens_per_call": later / total.target_calls,
            "copier_tokens_per_call": later / sum(measured.fewest for measured in self.edits),
        }


def sample(items: Sequence[T], wanted: int) -> list[T]:
    """So many of them, from all over."""
    size = min(wanted, len(items))
    return [items[number * len(items) // size] for number in range(size)]


def _settings(way: str, total: Statistics) -> str:
    """The options of `specedit rewrite` that are fastest."""
    return f"--proposers {way}" if total.speedup > 1 else "--no-speculation"
