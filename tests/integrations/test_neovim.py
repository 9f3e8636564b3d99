"""The plugin in a real Neovim, asking a real server."""

import json
import os
import shutil
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest

PLUGIN = Path(__file__).parents[2] / "integrations/neovim"
pytestmark = [
    pytest.mark.skipif(shutil.which("nvim") is None, reason="Neovim (apt install neovim) is not here"),
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not here"),
]

# What each script has at hand. It returns a value, which comes out as JSON; `wait` waits for the answer.
DRIVER = """
function wait(buf)
  assert(vim.wait(20000, function() return require("specedit").status(buf) == "" end, 5), "no answer")
end
function lines() return vim.api.nvim_buf_get_lines(0, 0, -1, false) end
function said() return vim.fn.execute("messages") end
local fine, value = xpcall(function() %s end, debug.traceback)
vim.fn.writefile({ vim.json.encode({ fine = fine, value = value }) }, vim.env.ANSWER)
vim.cmd("qa!")
"""
OLD = "def load(path):\n    return path\n\n\nprint(load('a'))\nprint(load('b'))\n"
NEW = OLD.replace("load", "read")
METHOD = "class A:\n    def f(self):\n  \n        return 1\n    y = 1\n"
RENAME = 'vim.cmd("SpecEdit Rename load to read."); wait()'


def until(condition, seconds=20):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


class Neovim:
    """A headless Neovim with the plugin and nothing else, that runs a script in Lua and ends."""

    def __init__(self, folder: Path, script: str, file: Path, url: str, command: str, **environment) -> None:
        (folder / "driver.lua").write_text(DRIVER % script)
        self._answer = folder / "answer.json"
        homes = {f"XDG_{kind}_HOME": str(folder) for kind in ("CONFIG", "DATA", "STATE", "CACHE")}
        self.process = subprocess.Popen(
            [
                *("nvim", "--headless", "-u", "NONE", "-i", "NONE", "-n"),
                *("--cmd", f"set rtp^={PLUGIN}", "--cmd", f"let g:specedit_url = '{url}'"),
                *("--cmd", "runtime plugin/specedit.lua"),
                *("-c", command, "-c", f"luafile {folder}/driver.lua", str(file)),
            ],
            env=os.environ | homes | environment | {"ANSWER": str(self._answer)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def value(self):
        """What the script returned."""
        output, _ = self.process.communicate(timeout=60)
        assert self._answer.exists(), output
        answer = json.loads(self._answer.read_text())
        assert answer["fine"], answer["value"]
        return answer.get("value")


@pytest.fixture
def neovim(tmp_path):
    """neovim(script, file, url): a running Neovim, that may begin with a command of its own. What is still
    running when the test ends is killed."""
    started: list[Neovim] = []

    def start(script, file, url, command="", **environment):
        folder = tmp_path / f"neovim{len(started)}"
        folder.mkdir()
        started.append(Neovim(folder, script, file, url, command, **environment))
        return started[-1]

    yield start
    for neovim in started:
        with suppress(ProcessLookupError):
            neovim.process.kill()
        neovim.process.communicate()


@pytest.fixture
def edited(serve, replay, neovim, tmp_path):
    """edited(script, answer, old): what a script returns in a Neovim with this file, and then the file."""

    def edit(script, answer=f"{NEW}```\n", old=OLD, name="app.py"):
        file = tmp_path / name
        file.write_bytes(old if isinstance(old, bytes) else old.encode())
        return neovim(script, file, serve(replay(answer)).url).value(), file.read_bytes()

    return edit


def test_the_whole_buffer(edited):
    value, file = edited(f"{RENAME} return lines()")
    assert value == NEW.splitlines()
    assert file.decode() == OLD  # until :w


def test_the_command_line_of_neovim(serve, replay, neovim, tmp_path):
    (tmp_path / "app.py").write_text(OLD)
    url = serve(replay(f"{NEW}```\n")).url
    started = neovim("wait(); return { lines(), said() }", tmp_path / "app.py", url, "SpecEdit Rename it.")
    lines, said = started.value()
    assert lines == NEW.splitlines()
    assert "Error" not in said  # while Neovim starts, the cursor is in line 0


def test_a_selection(edited):
    answer = "print(read('c'))\n```\n"
    value, _ = edited('vim.cmd("5SpecEdit Call read with c."); wait(); return lines()', answer)
    assert value == [*OLD.splitlines()[:4], "print(read('c'))", OLD.splitlines()[5]]


@pytest.mark.parametrize("context", [False, True])
def test_what_the_server_sees_of_a_selection(serve, replay, neovim, tmp_path, monkeypatch, context):
    (tmp_path / "app.py").write_text(METHOD)
    served = serve(replay("x\n```\n"))
    asked, really = [], served.runner.editor.stream_rewrite

    def noted(text, instruction, **options):
        asked.append((text, instruction, options["name"], list(options["references"].values())))
        return really(text, instruction, **options)

    monkeypatch.setattr(served.runner.editor, "stream_rewrite", noted)
    script = f"""
        require("specedit").setup({{ context = {str(context).lower()} }})
        vim.cmd("2,4SpecEdit Fix | it."); wait()
    """
    neovim(script, tmp_path / "app.py", served.url).value()
    assert asked == [("def f(self):\n\n    return 1\n", "Fix | it.", "app.py", [METHOD] if context else [])]


def test_a_selection_keeps_its_indentation(edited):
    answer = "def f(self):\n\n    x = 2\n\n    return x\n```\n"
    value, _ = edited('vim.cmd("2,4SpecEdit Let x be 2."); wait(); return lines()', answer, METHOD)
    assert value[1:-1] == ["    def f(self):", "  ", "        x = 2", "", "        return x"]


def test_a_method_is_checked_like_a_file(edited):
    value, _ = edited('vim.cmd("2,4SpecEdit Fix."); wait(); return said()', "def f(self:\n```\n", METHOD)
    assert "breaks the python syntax" in value


@pytest.mark.parametrize(
    "new", ["", "a\nb\nc\nd\n", "b\na\n", "a\n\nb\n", "x\ny\n", "b\n", "a\nx\nc\nb\nz\nd\n"]
)
def test_lines_come_and_go(edited, new):
    value, _ = edited(
        'vim.cmd("2,3SpecEdit! Go."); wait(); return lines()', f"{new}```\n", "first\na\nb\nlast\n", "a.py"
    )
    assert value == ["first", *new.splitlines(), "last"]


def test_one_step_undoes_it(edited):
    value, _ = edited(
        f"""
        vim.fn.append(0, "import os")
        {RENAME}
        local new = lines()
        vim.cmd("undo")
        return {{ new, lines() }}
        """,
        f"import os\n{NEW}```\n",
    )
    assert value == [["import os", *NEW.splitlines()], ["import os", *OLD.splitlines()]]


def test_marks_folds_and_the_cursor_stay(edited):
    value, _ = edited(
        """
        vim.cmd("5,6fold | 5foldopen | 1mark a | 6mark b | 4")
        vim.api.nvim_win_set_cursor(0, { 6, 7 })
        vim.cmd("SpecEdit Import os."); wait()
        local folds = { vim.fn.foldlevel(6), vim.fn.foldlevel(7) }
        return { vim.fn.line("'a"), vim.fn.line("'b"), vim.fn.getpos("."), folds }
        """,
        f"import os\n{NEW}```\n",
    )
    assert value[1:] == [7, [0, 7, 8, 0], [1, 1]]
    assert value[0] in (1, 2)  # "def load" became "import os", "def read"


def test_the_diff(edited):
    value, _ = edited(
        f"""
        {RENAME}
        local windows = {{ vim.fn.winnr("$"), vim.fn.expand("%:t") }}
        vim.cmd("wincmd j")
        local diff = {{ vim.bo.filetype, vim.bo.modifiable, lines() }}
        vim.api.nvim_feedkeys("q", "xt", false)
        return {{ windows, diff, vim.fn.winnr("$") }}
        """
    )
    windows, (filetype, modifiable, shown), after = value
    assert windows == [2, "app.py"]
    assert (filetype, modifiable) == ("diff", False)
    assert shown[:2] == ["--- a/app.py", "+++ b/app.py"]
    assert "-print(load('a'))" in shown
    assert "+print(read('b'))" in shown
    assert after == 1


def test_no_diff(edited):
    value, _ = edited(f'require("specedit").setup({{ diff = false }}) {RENAME} return vim.fn.winnr("$")')
    assert value == 1


@pytest.mark.parametrize("end", [b"", b"\r\n"])
def test_bytes_that_the_edit_leaves_alone(edited, end):
    old = b"one\r\n\ttwo\r\n\r\nthre\xc3\xa9" + end
    value, file = edited(
        'vim.o.fixendofline = false; vim.cmd("SpecEdit Say 2."); wait(); vim.cmd("write"); return said()',
        "one\n\t2\n\nthre\u00e9\n````\n",
        old,
        "notes.txt",
    )
    assert file == old.replace(b"two", b"2"), value


def test_line_ends_that_differ(edited):
    _, file = edited(
        'vim.cmd("SpecEdit Say 2."); wait(); vim.cmd("write")',
        "one\n2\nthree\n````\n",
        b"one\r\ntwo\nthree\n",
        "notes.txt",
    )
    assert file == b"one\r\n2\nthree\n"


def test_problems_leave_the_buffer_alone(edited):
    value, _ = edited(f"{RENAME} return {{ lines(), said() }}", "def read(path:\n```\n")
    assert value[0] == OLD.splitlines()
    assert "breaks the python syntax at line 1" in value[1]


def test_problems_can_be_overruled(edited):
    value, _ = edited('vim.cmd("SpecEdit! Break it."); wait(); return lines()', "def read(path:\n```\n")
    assert value == ["def read(path:"]


def test_an_answer_that_is_cut_is_never_taken(edited):
    value, _ = edited(
        """
        require("specedit").setup({ request = { max_tokens = 9 } })
        vim.cmd("SpecEdit! Rename it."); wait()
        return { lines(), said() }
        """
    )
    assert value[0] == OLD.splitlines()
    assert "cut after 9 tokens" in value[1]


def test_nothing_to_change(edited):
    value, _ = edited(f"{RENAME} return {{ vim.bo.modified, said() }}", f"{OLD}```\n")
    assert value[0] is False
    assert "Nothing to change" in value[1]


def test_who_types_meanwhile_wins(edited):
    value, _ = edited(
        """
        vim.cmd("SpecEdit Rename it.")
        vim.fn.setline(1, "mine")
        wait()
        return { lines(), said() }
        """
    )
    assert value[0] == ["mine", *OLD.splitlines()[1:]]
    assert "changed meanwhile" in value[1]


def test_writing_and_leaving_meanwhile_is_no_change(edited):
    value, _ = edited(
        """
        local buf = vim.fn.bufnr()
        vim.o.hidden = true
        vim.cmd("SpecEdit Rename it.")
        vim.cmd("write | enew")
        wait(buf)
        return vim.api.nvim_buf_get_lines(buf, 0, -1, false)
        """
    )
    assert value == NEW.splitlines()


@pytest.mark.parametrize(("option", "word"), [("nomodifiable", "modifiable"), ("readonly", "read-only")])
def test_buffers_that_must_not_change(edited, option, word):
    value, _ = edited(f'vim.cmd("setlocal {option}") {RENAME} return {{ lines(), said() }}')
    assert value[0] == OLD.splitlines()
    assert word in value[1]


@pytest.mark.parametrize("old", [b"caf\xe9\n", b"caf\xc3\n\xa9\n", b"a\0b\n", b"\xf0\x9f\n"])
def test_bytes_that_are_no_text(edited, old):
    script = f'vim.cmd("edit ++enc=utf-8 ++bad=keep") {RENAME} return said()'
    value, file = edited(script, old=old, name="notes.txt")
    assert "no text" in value
    assert file == old


def test_characters_of_every_length(edited):
    old = "\u00e9\u20ac\U0001f600"
    value, _ = edited(f"{RENAME} return lines()", f"a{old}b\n````\n", f"{old}\n", "notes.txt")
    assert value == [f"a{old}b"]


@pytest.fixture
def held(serve, gated, neovim, tmp_path):
    """held(script): a Neovim with a server that does not answer yet. `go()` in it waits for `release()`."""
    (tmp_path / "app.py").write_text(OLD)
    go = tmp_path / "go"
    there = f'vim.fn.filereadable("{go}") == 1'
    waiting = f"function go() assert(vim.wait(20000, function() return {there} end)) end "

    class Held:
        def __init__(self, script, key="", **environment):
            self.served = serve(gated, api_keys=(key,) if key else ())
            self.neovim = neovim(waiting + script, tmp_path / "app.py", self.served.url, **environment)
            until(lambda: gated.target.calls)

        def release(self):
            go.touch()

    return Held


@pytest.mark.parametrize("leave", ["SpecEditCancel", "bwipeout!", "qa!"])
def test_who_leaves_frees_the_row(held, gated, leave):
    script = f"""
        local buf = vim.fn.bufnr()
        vim.cmd("SpecEdit Rename it."); go()
        vim.cmd("{leave}"); wait(buf)
        return said()
    """
    running = held(script)
    running.release()
    if leave == "qa!":
        running.neovim.process.wait(20)
    else:
        assert "Stopped" in running.neovim.value()
        assert running.served.runner.running  # the model is stuck still: it is curl that has ended
    time.sleep(0.2)
    gated.target.gate.set()
    until(lambda: not running.served.runner.running)
    assert gated.target.calls < 5  # of some two hundred


def test_one_answer_at_a_time(held, gated):
    running = held('vim.cmd("SpecEdit One."); go(); vim.cmd("SpecEdit Two."); return said()')
    running.release()
    assert "on its way" in running.neovim.value()


def test_the_status(held, gated):
    script = """
        local mark = function()
          local space = vim.api.nvim_create_namespace("specedit")
          local marks = vim.api.nvim_buf_get_extmarks(0, space, 0, -1, { details = true })
          return marks[1] and { marks[1][2], marks[1][4].virt_text[1][1] } or 0
        end
        vim.cmd("3 | SpecEdit One.")
        local before = mark()
        go(); wait()
        return { before, mark() }
    """
    running = held(script)
    gated.target.gate.set()
    running.release()
    assert running.neovim.value() == [[2, "specedit: reading"], 0]


def arguments_of_processes():
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="it looks at processes in /proc")
def test_the_key_is_in_no_list_of_processes(held, gated):
    script = 'vim.cmd("SpecEdit Rename it."); go(); wait(); return said()'
    running = held(script, key="open-sesame", SPECEDIT_API_KEY="open-sesame")
    seen = list(arguments_of_processes())
    gated.target.gate.set()
    running.release()
    assert "API key" not in running.neovim.value()
    assert any(b"curl\0-q\0--config\0" in arguments for arguments in seen)
    assert not any(b"open-sesame" in arguments for arguments in seen)


def test_no_key(serve, replay, neovim, tmp_path):
    served = serve(replay("x\n```\n"), api_keys=("open-sesame",))
    said = neovim(f"{RENAME} return said()", tmp_path / "app.py", served.url, SPECEDIT_API_KEY="").value()
    assert "The API key is missing or wrong" in said


def test_no_server(neovim, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}"
    said = neovim(f"{RENAME} return said()", tmp_path / "app.py", url).value()
    assert "`specedit serve`" in said
    assert said.strip().count("\n") == 0


def test_another_server(serve, replay, neovim, tmp_path):
    url = serve(replay("x")).url
    said = neovim(f"{RENAME} return said()", tmp_path / "app.py", f"{url}/health").value()
    assert "nothing at this path" in said


def test_a_model_that_fails(held, gated):
    running = held('vim.cmd("SpecEdit Rename it."); go(); wait(); return { lines(), said() }')
    gated.target.broken = True
    gated.target.gate.set()
    running.release()
    lines, said = running.neovim.value()
    assert lines == OLD.splitlines()
    assert "failed" in said


def test_no_file_is_left(edited):
    value, _ = edited(
        """
        local files = function()
          local all = vim.fn.glob(vim.fn.fnamemodify(vim.fn.tempname(), ":h") .. "/*", true, true)
          all = vim.tbl_filter(function(path) return vim.fn.getftype(path) == "file" end, all)
          return vim.tbl_map(vim.fn.getfperm, all)
        end
        vim.cmd("SpecEdit Rename it.")
        local before = files()
        wait()
        return { before, #files() }
        """
    )
    assert value == [["rw-------"], 0]
