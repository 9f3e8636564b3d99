"""The contract on the default model and real files."""

from pathlib import Path

import pytest

from bench.count import CURVES
from bench.edits import load_edits
from specedit import Sampling, SpecEditor
from specedit.decoding.cost import FixedCost
from specedit.editing import build_prompt

EDITS = range(20)
DEMO = Path(__file__).parents[2] / "examples" / "temperature.py"


@pytest.fixture(scope="module")
def editor() -> SpecEditor:
    # What verifying takes is not measured: on a busy machine it may seem that nothing pays.
    return SpecEditor.from_pretrained(dtype="float32", device="cpu", cost=FixedCost(CURVES["float32"]))


def ask(editor: SpecEditor, name: str, text: str, instruction: str, tokens: int, **options):
    prompt = build_prompt(text, instruction, name)
    return editor.generate(
        prompt.messages, prefill=prompt.prefill, prediction=text, max_new_tokens=tokens, **options
    )


@pytest.mark.model
def test_the_default_model_writes_what_transformers_writes(editor, generate):
    text = "def area(width, height):\n    return width * height\n\n\nprint(area(2, 3))\n"
    ours = ask(editor, "area.py", text, "Rename area to surface.", tokens=40)
    assert ours.tokens == generate(editor.target.model, ours.prompt, 40)
    assert ours.stats.accepted_tokens > 0


@pytest.mark.model
def test_the_demo_comes_out_right(editor):
    text = DEMO.read_text()
    result = editor.rewrite(DEMO, "Rename the function describe to label.")
    assert result.text == text.replace("describe", "label")
    assert not result.problems


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("number", EDITS)
def test_real_edits_are_greedily_what_transformers_writes(editor, generate, number):
    edit = load_edits()[number]
    ours = ask(editor, edit.name, edit.text, edit.instruction, tokens=256)
    assert ours.tokens == generate(editor.target.model, ours.prompt, 256)


@pytest.mark.slow
@pytest.mark.model
@pytest.mark.parametrize("number", EDITS)
def test_real_edits_are_sampled_as_plain_decoding_samples(editor, number):
    edit = load_edits()[number]
    sampling = Sampling(temperature=0.8, top_p=0.95, seed=number)
    request = (edit.name, edit.text, edit.instruction)
    ours = ask(editor, *request, tokens=256, sampling=sampling)
    plain = ask(editor, *request, tokens=256, sampling=sampling, speculate=False)
    assert ours.tokens == plain.tokens
