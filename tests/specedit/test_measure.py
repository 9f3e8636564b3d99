"""`specedit measure`: the replay of a repository's own history, with a real, small model."""

import json
import os
import subprocess

import pytest

from specedit import SpecEditError, SpecEditor
from specedit.history import PastEdit
from specedit.measure import Meter
from specedit.replay import count

FUNCTION = "def add(a, b):\n    return a + b\n\n\n"


@pytest.fixture
def git(tmp_path, monkeypatch):
    """Runs git in the working directory, a new repository."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", "a")
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "a@b")

    def run(*arguments):
        subprocess.run(["git", *arguments], check=True, capture_output=True)

    run("init")
    return run


@pytest.fixture
def history(git, tmp_path):
    """Five commits of one file that grows by a function each time."""
    for number in range(1, 6):
        (tmp_path / "add.py").write_text(FUNCTION * number)
        git("add", "-A")
        git("commit", "-m", "Add one more.")


@pytest.fixture
def measure(specedit, edit_model):
    """Runs `specedit measure` on the repository: measure("--json")."""

    def run(*options):
        model = ["--model", edit_model, "--device", "cpu", "--dtype", "float32"]
        return specedit("measure", *model, "--check", 1, *options)

    return run


def test_says_whether_it_pays(measure, history):
    ran = measure()
    assert ran.code == 0
    assert "edits  4 (files left out: 1 new)" in ran.out
    for what in (
        "decision",
        "speed-up",
        "tokens a call",
        "best settings",
        "tokens from",
        "gained least",
        "timed",
    ):
        assert f"{what}  " in ran.out


def test_json_has_every_edit_and_way(measure, history):
    report = json.loads(measure("--json").out)
    assert [edit["path"] for edit in report["edits"]] == ["add.py"] * 4
    assert set(report["ways"]) == {"structural,predicted,ngram", "structural", "predicted", "ngram"}
    for edit in report["edits"]:
        assert edit["fewest_passes"] <= min(way["target_calls"] for way in edit["ways"].values())


def test_an_edit_that_only_adds_changes_its_share_of_lines(measure, history):
    newest = json.loads(measure("--json", "--last", 1).out)["edits"][0]
    assert newest["lines"] == 20
    assert newest["changed"] == pytest.approx(4 / 20)


def test_one_proposer_is_one_way(measure, history):
    assert list(json.loads(measure("--json", "--proposers", "ngram").out)["ways"]) == ["ngram"]


def test_the_page_has_plots_and_every_edit(measure, history, tmp_path):
    measure("--html", "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert page.count("<svg") == 1
    assert page.count("add.py") >= 4


def test_what_came_from_the_repository_is_text(measure, git, tmp_path):
    for text in ("a\n", "b\n"):
        (tmp_path / "<b>\n\x1b.txt").write_text(text)
        git("add", "-A")
        git("commit", "-m", "Edit.")
    ran = measure("--html", "report.html")
    assert "<b>\\x0a\\x1b.txt" in ran.out
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "&lt;b&gt;\\x0a\\x1b.txt" in page
    assert "<b>" not in page


def test_ctrl_c_keeps_what_was_measured(measure, history, monkeypatch):
    real, calls = Meter.measure, []

    def until_the_third(self, edit):
        calls.append(edit)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, edit)

    monkeypatch.setattr(Meter, "measure", until_the_third)
    ran = measure("--json")
    assert ran.code == 130
    assert "interrupted" in ran.err
    assert len(json.loads(ran.out)["edits"]) == 2


def test_a_model_that_fails_in_timing_keeps_what_was_counted(measure, history, monkeypatch):
    def fails(self, edit, way):
        raise SpecEditError("Memory ran out: take a smaller model.")

    monkeypatch.setattr(Meter, "time", fails)
    ran = measure("--json")
    assert ran.code == 0
    assert "Memory ran out" in ran.err
    assert len(json.loads(ran.out)["edits"]) == 4


def test_what_is_timed_is_counted_as_if_nothing_was_measured_before(edit_model, monkeypatch):
    calls = []

    def counted(*arguments):
        stats = count(*arguments)
        calls.append(stats.target_calls)
        return stats

    monkeypatch.setattr("specedit.measure.count", counted)
    editor = SpecEditor.from_pretrained(str(edit_model), dtype="float32", proposers=["ngram"])
    meter = Meter(editor, ["ngram"])
    words = " ".join(f"w{number * number}" for number in range(60))
    edit = PastEdit("0", "Write it.", "a.txt", "", f"{words}\n")
    meter.time(edit, "ngram")
    meter.measure(edit)
    meter.time(edit, "ngram")
    assert calls[-1] == calls[0]


def test_why_nothing_was_measured(measure, git, tmp_path):
    (tmp_path / "a.txt").write_text("a")
    git("add", "-A")
    git("commit", "-m", "Begin.")
    assert "1 new: try a larger --last" in " ".join(measure().err.split())


def test_a_file_too_long_for_the_model_is_counted(measure, history, git, tmp_path):
    for letter in "ab":
        (tmp_path / "long.txt").write_text(letter * 40_000)
        git("add", "-A")
        git("commit", "-m", "Edit.")
    report = json.loads(measure("--json").out)
    assert len(report["edits"]) == 4
    assert report["left_out"] == {"new": 2, "too long for the model's context": 1}
    alone = measure("--last", "1")
    assert alone.code == 1
    assert "None of 1 edits fits" in alone.err


def test_a_draft_model_drafts(measure, history, edit_model):
    report = json.loads(measure("--json", "--last", 1, "--proposers", f"ngram,draft_model:{edit_model}").out)
    assert report["ways"][f"draft_model:{edit_model}"]["tokens_by_source"]["draft_model"] > 0


def test_json_has_the_decision(measure, history):
    report = json.loads(measure("--json").out)
    decision, best = report["decision"], next(iter(report["ways"].values()))
    assert decision["pays"] == (decision["ms_per_token"] < decision["plain_ms_per_token"])
    assert decision["tokens_per_call"] == (best["completion_tokens"] - 4) / best["target_calls"]


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--repo", "/"], 1, "is not in a git repository: name one with --repo"),
        (["--html", "nowhere/report.html"], 1, "There is no directory"),
        (["--proposers", "psychic"], 2, "There is no proposer"),
        (["--proposers", ""], 2, "names none"),
        (["--last", "0"], 2, "--last"),
    ],
)
def test_bad_input_is_one_sentence(measure, history, options, code, says):
    ran = measure(*options)
    assert ran.code == code
    assert says in ran.err
    assert "Traceback" not in ran.err


def test_a_history_without_changes_is_said(measure, git, tmp_path):
    (tmp_path / "a.txt").write_text("a\n")
    git("add", "-A")
    git("commit", "-m", "Begin.")
    ran = measure()
    assert ran.code == 1
    assert "No text file was changed in the last 50 commits" in ran.err
