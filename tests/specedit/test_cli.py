"""The command line as its users meet it: with a real, small model that knows a few edits (`edit_model`)."""

import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import pexpect
import pytest
import torch

from specedit import Sampling
from specedit.decoding.loop import decode

SCRIPT = str(Path(sys.executable).with_name("specedit"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory of every test. One thread: two fight for the cores when anything else runs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield tmp_path
    torch.set_num_threads(threads)


@pytest.fixture
def arguments(edits, edit_model):
    """The file and the command line of an edit, as in `arguments("rename", "--write")`."""

    def of(name, *options):
        edit = edits[name]
        if not Path(edit.name).exists():
            Path(edit.name).write_bytes(edit.old)
        model = ["--model", str(edit_model), "--device", "cpu", "--dtype", "float32"]
        return ["rewrite", edit.name, "-i", edit.instruction, *model, "--encoding", edit.encoding, *options]

    return of


@pytest.fixture
def rewrite(specedit, arguments, edits):
    """Runs `specedit rewrite` in this process on the file of an edit: rewrite("rename", "--write")."""

    def run(name, *options):
        ran = specedit(*arguments(name, *options))
        return replace(ran, data=Path(edits[name].name).read_bytes())

    return run


@pytest.fixture
def shell(arguments):
    """Starts `specedit rewrite` on the file of an edit in a process of its own, without a terminal."""
    started = []

    def start(name, *options, **popen):
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([SCRIPT, *arguments(name, *options)], text=True, **(pipes | popen))
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def terminal(arguments):
    """Starts `specedit rewrite` on the file of an edit in a terminal."""
    started = []

    def start(name, *options):
        process = pexpect.spawn(SCRIPT, arguments(name, *options), encoding="utf-8", timeout=60)
        started.append(process)
        return process

    yield start
    for process in started:
        process.close(force=True)


# What is shown and what is written


def test_shows_the_diff_and_changes_nothing(rewrite, edits):
    ran = rewrite("rename")
    assert ran.code == 0
    assert ran.out.startswith("diff --git a/greet.py b/greet.py\n")
    assert "-def load(path):\n+def read_config(path):\n" in ran.out
    assert "greet.py is unchanged (--write writes it); " in ran.err
    assert "tokens/s" in ran.err
    assert ran.data == edits["rename"].old


@pytest.mark.parametrize("name", ["rename", "crlf"])
def test_write(rewrite, edits, name):
    ran = rewrite(name, "--write")
    assert ran.code == 0
    assert f"wrote {edits[name].name}; " in ran.err
    assert ran.data == edits[name].new
    assert os.listdir() == [edits[name].name]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("name", ["rename", "crlf"])
def test_git_takes_what_is_printed(rewrite, edits, name):
    ran = rewrite(name)
    subprocess.run(["git", "apply"], input=ran.out.encode(), check=True)
    assert Path(edits[name].name).read_bytes() == edits[name].new


def test_diff_neither_asks_nor_writes(rewrite, edits):
    ran = rewrite("rename", "--diff")
    assert ran.code == 0
    assert ran.data == edits["rename"].old


def test_output_goes_to_another_file(rewrite, edits):
    Path("greet.py").write_bytes(edits["rename"].old)
    Path("greet.py").chmod(0o750)
    ran = rewrite("rename", "--output", "new.py")
    assert ran.code == 0
    assert "wrote new.py; " in ran.err
    assert ran.data == edits["rename"].old
    assert Path("new.py").read_bytes() == edits["rename"].new
    assert stat.S_IMODE(Path("new.py").stat().st_mode) == 0o750


def test_output_to_standard_output_is_the_file_and_nothing_else(rewrite, edits):
    ran = rewrite("crlf", "-o", "-")
    assert ran.code == 0
    assert ran.out.encode() == edits["crlf"].new
    assert ran.data == edits["crlf"].old


def test_an_edit_that_changes_nothing(rewrite, edits):
    ran = rewrite("same", "--write")
    assert ran.code == 0
    assert ran.out == ""
    assert "the model changed nothing in same.txt; " in ran.err
    assert ran.data == edits["same"].old


def test_json_is_one_object(rewrite, edits):
    ran = rewrite("rename", "--json")
    report = json.loads(ran.out)
    assert ran.code == 0
    assert list(report) == ["text", "diff", "finish_reason", "problems", "written", "stats"]
    assert report["text"].encode() == edits["rename"].new
    assert report["diff"].startswith("diff --git ")
    assert report["finish_reason"] == "stop"
    assert report["problems"] == []
    assert report["written"] is False
    assert report["stats"]["completion_tokens"] > 0
    assert report["stats"]["seconds"]["total"] > 0
    assert ran.data == edits["rename"].old


def test_json_says_whether_it_wrote(rewrite, edits):
    ran = rewrite("rename", "--json", "--write")
    assert json.loads(ran.out)["written"] is True
    assert ran.data == edits["rename"].new


def test_json_of_a_refused_answer_says_why(rewrite, edits):
    ran = rewrite("placeholder", "--json", "--write")
    report = json.loads(ran.out)
    assert ran.code == 1
    assert report["written"] is False
    assert "left out" in report["problems"][0]
    assert report["problems"][0] in ran.err


def test_compare_also_decodes_plainly(rewrite):
    ran = rewrite("rename", "--compare", "--json")
    comparison = json.loads(ran.out)["compare"]
    assert list(comparison) == ["identical", "plain_seconds", "speculative_seconds"]
    assert comparison["identical"] is True
    assert comparison["plain_seconds"] > 0 < comparison["speculative_seconds"]
    assert "as fast, identical" in ran.err


@pytest.mark.parametrize(
    ("dtype", "margin", "says"),
    [
        ("float32", 0.25, "not identical (they part where the two best logits are 0.25 apart)"),
        ("bfloat16", 0.25, "are 0.25 apart; --dtype float32 is exact)"),
        ("bfloat16", 0.0, "they part where two tokens are equally likely; --dtype float32 is exact)"),
    ],
)
def test_compare_says_where_two_texts_part(rewrite, monkeypatch, dtype, margin, says):
    monkeypatch.setattr("specedit.editor.SpecEditor.margin", lambda *_: margin)
    ran = rewrite("same", "--compare", "--dtype", dtype)
    assert says in ran.err


def test_compare_with_sampling(rewrite):
    ran = rewrite("rename", "--compare", "--json", "--temperature", 1, "--top-p", 0.9, "--seed", 3)
    assert json.loads(ran.out)["compare"]["identical"] is True


def test_every_decoding_option_reaches_the_loop(rewrite, monkeypatch):
    asked = []

    def watched(target, request, sampler, planner, **options):
        asked.append((sampler.sampling, planner is not None, options["max_tokens"]))
        return decode(target, request, sampler, planner, **options)

    monkeypatch.setattr("specedit.editor.decode", watched)
    wanted = Sampling(
        temperature=0.7,
        top_k=5,
        top_p=0.9,
        min_p=0.05,
        repetition_penalty=1.1,
        presence_penalty=0.2,
        frequency_penalty=0.3,
        seed=4,
    )
    names = [field.name for field in fields(Sampling) if field.name != "logit_bias"]  # has no option
    options = [f"--{name.replace('_', '-')}={getattr(wanted, name)}" for name in names]
    rewrite("rename", "--max-new-tokens", 9, *options)
    assert asked == [(wanted, True, 9)]


def test_no_speculation_decodes_plainly(rewrite, edits):
    ran = rewrite("rename", "--no-speculation", "--json")
    report = json.loads(ran.out)
    assert report["text"].encode() == edits["rename"].new
    assert report["stats"]["drafted_by_proposer"] == {}


def test_proposers_are_chosen_by_name(rewrite):
    ran = rewrite("endless", "--proposers", "ngram", "--max-new-tokens", 200, "--json")
    assert set(json.loads(ran.out)["stats"]["drafted_by_proposer"]) == {"ngram"}


def test_the_instruction_comes_from_standard_input(specedit, arguments, edits):
    command = arguments("rename", "-i", "-", "--write")
    ran = specedit(*command, stdin=edits["rename"].instruction.encode())
    assert ran.code == 0
    assert Path("greet.py").read_bytes() == edits["rename"].new


# What is refused


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("placeholder", [], "Line 3 stands for code that is left out"),
        ("syntax", [], "breaks the python syntax at line 1"),
        ("endless", ["--max-new-tokens", 30], "was cut after 30 tokens: allow more (--max-new-tokens)"),
        ("endless", ["--max-new-tokens", 30, "--force"], "was cut after 30 tokens"),
        (
            "rename",
            ["--stop=zoo", "--stop=open"],
            "stopped at 'open', incomplete: leave out that",
        ),
        ("rename", ["--stop=open", "--force"], "stopped at 'open'"),
        ("euro", [], "which iso8859-1 cannot express; convert price.txt to UTF-8 first"),
        ("euro", ["--force"], "cannot express"),
    ],
)
@pytest.mark.parametrize("how", ["--write", "--diff", "--output=new.txt", "--output=-"])
def test_a_bad_answer_is_refused(rewrite, edits, name, options, says, how):
    ran = rewrite(name, how, *options)
    assert ran.code == 1
    assert says in ran.err
    assert ran.err.count("\n") == 1
    assert ran.data == edits[name].old
    assert os.listdir() == [edits[name].name]
    assert how != "--output=-" or ran.out == ""


@pytest.mark.parametrize("name", ["placeholder", "syntax"])
def test_force_takes_a_complete_answer(rewrite, edits, name):
    ran = rewrite(name, "--write", "--force")
    assert ran.code == 0
    assert ran.data.decode() == edits[name].answer.rstrip("`")


GO = ("-i", "Go.")


@pytest.mark.parametrize(
    ("bad", "code", "says"),
    [
        (("missing.py", *GO), 1, "There is no file missing.py; check its name."),
        ((".", *GO), 1, ". is a directory; name one file."),
        (("/dev/null", *GO), 1, "/dev/null is not a regular file"),
        (("binary", *GO), 1, "binary holds NUL bytes, so it looks binary"),
        (("latin.txt", *GO), 1, "latin.txt is not utf-8; name its encoding"),
        (("latin.txt", *GO, "--encoding", "klingon"), 1, "No encoding is called 'klingon'"),
        (("a.py", "-i", ""), 1, "The instruction is empty"),
        (("a.py", "-i", "-"), 1, "The instruction is empty"),  # nothing on standard input
        (("a.py", "-i", "caf\udce9"), 1, "write the instruction in UTF-8"),
        (("a.py", *GO, "-r", "missing.py"), 1, "There is no file missing.py"),
        # Before the model: it may take long to load.
        (("a.py", "-i", " ", "--model", "nothing-here"), 1, "The instruction is empty"),
        (("a.py", *GO, "-o", "none/b.py", "--model", "nothing-here"), 1, "none; make it first."),
        (("a.py", *GO, "-o", ".", "--model", "nothing-here"), 1, "is not a regular file"),
        (("a.py", *GO, "--model", "nothing-here"), 1, "There is no model nothing-here"),
        (("a.py", *GO, "--model", "."), 1, ". holds no config.json"),
        (("a.py", *GO, "--model", "a.py"), 1, "a.py is not a model"),
        (("a.py", *GO, "--device", "cuda:99"), 1, "torch finds no cuda:99 on this machine"),
        (("a.py", *GO, "--device", "abacus"), 2, "There is no device abacus"),
        (("a.py", *GO, "--dtype", "int1"), 2, "'int1' is not one of 'auto', 'float32'"),
        (("a.py", *GO, "--proposers", "oracle"), 2, "There is no proposer “oracle”"),
        (("a.py", *GO, "--temperature", "nan"), 2, "temperature must be"),
        (("long.txt", *GO), 1, "long.txt is too long for this model"),
        (("a.py", *GO, "-w", "-o", "b.py"), 2, "--write, --diff and --output exclude each other."),
        (("a.py", *GO, "--diff", "-w"), 2, "exclude each other"),
        (("a.py",), 2, "Missing option '-i'"),
        (GO, 2, "Missing argument 'FILE'"),
        (("a.py", *GO, "--max-new-tokens", "0"), 2, "--max-new-tokens"),
        (("a.py", *GO, "--temperature", "-1"), 2, "--temperature"),
        (("a.py", *GO, "--top-p", "0"), 2, "--top-p"),
        (("a.py", *GO, "--sideways"), 2, "--sideways"),
    ],
)
def test_bad_input_is_one_sentence_and_no_traceback(specedit, edit_model, bad, code, says):
    Path("a.py").write_text("x = 1\n")
    Path("binary").write_bytes(b"\x7fELF\0\1")
    Path("latin.txt").write_bytes(b"caf\xe9\n")
    if "long.txt" in bad:
        Path("long.txt").write_text("word\n" * 20000)

    ran = specedit("rewrite", "--model", edit_model, *bad)

    assert ran.code == code
    assert says in ran.err
    assert ran.out == ""
    assert "Traceback" not in ran.err
    assert code == 2 or ran.err.count("\n") == 1
    assert Path("a.py").read_text() == "x = 1\n"


def test_commands_without_arguments_show_help(specedit):
    for command in ([], ["models"]):
        ran = specedit(*command)
        assert ran.code == 2
        assert "Usage: specedit" in ran.err


def test_version_and_help(specedit):
    assert specedit("--version").out.startswith("specedit, version 0.")
    assert "--instruction" in specedit("rewrite", "-h").out


# In a process of its own


def test_a_process_writes(shell, edits):
    process = shell("rename", "--write")
    out, err = process.communicate()
    assert process.returncode == 0
    assert "+def read_config" in out
    assert "wrote greet.py" in err
    assert "\x1b" not in out + err  # no colours, no cursor moves
    assert Path("greet.py").read_bytes() == edits["rename"].new


def test_a_full_disk_leaves_the_file_as_it_was(shell, edits):
    def no_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))

    process = shell("rename", "--write", preexec_fn=no_room)
    _, err = process.communicate()
    assert process.returncode == 1
    assert "Cannot write" in err
    assert "Traceback" not in err
    assert Path("greet.py").read_bytes() == edits["rename"].old
    assert os.listdir() == ["greet.py"]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="only Linux has a full device")
def test_full_standard_output_is_said(shell, edits):
    with open("/dev/full", "w") as full:
        process = shell("rename", "--write", stdout=full)
        _, err = process.communicate()
    assert process.returncode == 1
    assert err == "specedit: Cannot write the output (No space left on device).\n"
    assert Path("greet.py").read_bytes() == edits["rename"].old


def test_two_runs_on_one_file_leave_one_whole_answer(shell, edits):
    both = [shell("rename", "--write"), shell("placeholder", "--write", "--force")]
    errors = [process.communicate()[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1]
    won, lost = (0, 1) if both[0].returncode == 0 else (1, 0)
    assert "wrote greet.py" in errors[won]
    assert "changed on disk meanwhile and was left as it is" in errors[lost]
    whole = [edits["rename"].new, edits["placeholder"].answer.removesuffix("```").encode()]
    assert Path("greet.py").read_bytes() == whole[won]
    assert os.listdir() == ["greet.py"]


# On a terminal


@pytest.mark.parametrize("answer", ["y", "n"])
def test_a_terminal_is_asked(terminal, edits, answer):
    process = terminal("rename")
    process.expect_exact("\x1b[31m-def load(path):")
    process.expect_exact("\x1b[32m+def read_config(path):")
    process.expect_exact("Write greet.py? [y/N]: ")
    assert Path("greet.py").read_bytes() == edits["rename"].old
    process.sendline(answer)
    process.expect_exact("wrote greet.py; " if answer == "y" else "greet.py is unchanged; ")
    process.expect(pexpect.EOF)
    process.close()
    assert process.exitstatus == 0
    assert Path("greet.py").read_bytes() == (edits["rename"].new if answer == "y" else edits["rename"].old)


def test_ctrl_c_while_decoding(terminal, edits):
    process = terminal("endless", "--write", "--no-speculation", "--max-new-tokens", "60000")
    process.expect("tokens/s")  # live, under the text as it comes
    time.sleep(0.2)
    process.sendintr()
    process.expect_exact("specedit: interrupted.")
    process.expect(pexpect.EOF)
    process.close()
    assert process.exitstatus == 130
    assert Path("greet.py").read_bytes() == edits["endless"].old
    assert os.listdir() == ["greet.py"]


def test_ctrl_c_at_the_question(terminal, edits):
    process = terminal("rename")
    process.expect_exact("Write greet.py?")
    process.sendintr()
    process.expect_exact("specedit: interrupted.")
    process.expect(pexpect.EOF)
    process.close()
    assert process.exitstatus == 130
    assert Path("greet.py").read_bytes() == edits["rename"].old


# The other commands


def test_doctor_says_what_is_here(specedit):
    ran = specedit("doctor")
    assert ran.code == 0
    for what in (
        "python: 3.",
        "torch: ",
        "transformers: 5.",
        "device: ",
        "proposers: ",
        "grammars: ",
        "cache: ",
    ):
        assert f"✓ {what}" in ran.out


def test_doctor_fails_when_something_is_missing(specedit, monkeypatch):
    monkeypatch.setattr("specedit.doctor._loads", lambda language: language != "rust")
    ran = specedit("doctor")
    assert ran.code == 1
    assert "✗ grammars: rust missing: reinstall specedit with its dependencies" in ran.out


def test_doctor_does_without_torch(specedit, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # importing it fails
    ran = specedit("doctor")
    assert ran.code == 1
    assert "✗ torch: cannot be imported (" in ran.out
    assert "✓ cache: " in ran.out


def test_models_list_without_any(folder):
    environment = os.environ | {"SPECEDIT_CACHE": str(folder), "HF_HOME": str(folder)}
    run = subprocess.run([SCRIPT, "models", "list"], env=environment, capture_output=True, text=True)
    assert run.returncode == 0
    assert run.stdout == ""
    assert "`specedit models fetch` brings the default one" in run.stderr


def test_models_fetch_finds_a_folder(specedit, edit_model):
    ran = specedit("models", "fetch", edit_model)
    assert ran.code == 0
    assert ran.out.strip() == str(edit_model)


def test_models_remove_of_a_stranger_is_refused(specedit, edit_model):
    ran = specedit("models", "remove", edit_model)
    assert ran.code == 1
    assert "is not in the cache" in ran.err
    assert (edit_model / "config.json").exists()
