"""What `import specedit` gives, and what it does not drag along."""

import os
import subprocess
import sys
from importlib.metadata import entry_points, version
from importlib.resources import files
from pathlib import Path

import pytest

import specedit
from specedit import proposers


def python(code, cwd):
    """Run code in a Python of its own, outside the repository, and return what it prints."""
    run = subprocess.run([sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


@pytest.mark.parametrize(
    "module", ["specedit", "specedit.cli", "specedit.models", "specedit.editing", "specedit.results"]
)
def test_import_is_light(module, tmp_path):
    heavy = "{'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)"
    assert python(f"import sys, {module}; print(*{heavy})", tmp_path) == []


def test_every_public_name_is_there():
    for name in specedit.__all__:
        assert getattr(specedit, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'Editor'"):
        specedit.Editor  # noqa: B018


def test_the_version_is_the_installed_one():
    assert specedit.__version__ == version("specedit")


def test_types_are_for_the_callers_type_checker_too():
    assert files("specedit").joinpath("py.typed").is_file()


def test_the_console_script_is_the_command_line():
    (script,) = entry_points(group="console_scripts", name="specedit")
    assert script.value == "specedit.cli:main"


def test_proposers_are_found_by_their_own_names():
    for name in ("ngram", "predicted", "structural"):
        (proposer,) = proposers.create([name])
        assert proposer.name == name
        assert isinstance(proposer, proposers.Proposer)


def test_nothing_of_ours_lands_outside_our_package(tmp_path):
    code = "import importlib.util as u; print(*filter(u.find_spec, ['proposers', 'integrations', 'bench']))"
    assert python(code, tmp_path) == []
    assert python("import specedit.proposers.ngram as m; print(m.__name__)", tmp_path) == [
        "specedit.proposers.ngram"
    ]


@pytest.mark.parametrize(
    ("options", "code"),
    [(["--help"], 0), (["--dtype", "x"], 2), (["--device", "x"], 2), (["--proposers", "x"], 2)],
)
def test_help_and_wrong_names_do_not_wait_for_torch(tmp_path, options, code):
    # A torch that cannot be imported would make the command fail.
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    run = subprocess.run(
        [Path(sys.executable).with_name("specedit"), "rewrite", "a.py", "-i", "Go.", *options],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    assert run.returncode == code, run.stderr
