import json

import pytest

from specedit import Sampling, SpecEditError, SpecEditor
from specedit.decoding.cost import CostCurve
from specedit.targets.hf import HFTarget

CHAT = [{"role": "user", "content": "Say it."}]
SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["apple", "apricot", "pear"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["kind", "count"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def editor(llama, tokenizer):
    return SpecEditor(HFTarget(llama(tokenizer)), tokenizer, cost=CostCurve([1.0] * 9))


@pytest.mark.parametrize("sampling", [Sampling(), *(Sampling(temperature=1.0, seed=n) for n in range(4))])
def test_any_model_writes_json_that_fulfils_the_schema(editor, sampling):
    answer = editor.generate(CHAT, json_schema=SCHEMA, sampling=sampling, max_new_tokens=60)
    said = json.loads(answer.text)
    assert said["kind"] in SCHEMA["properties"]["kind"]["enum"]
    assert 0 <= said["count"] <= 99
    assert answer.finish_reason == "stop"


@pytest.mark.parametrize("sampling", [Sampling(), *(Sampling(temperature=1.0, seed=n) for n in range(4))])
@pytest.mark.parametrize("guess", ['{"kind":"apricot","count":7}', '{"kind":"apple", no', "{{{{"])
def test_speculation_changes_nothing(editor, sampling, guess):
    options = {"json_schema": SCHEMA, "sampling": sampling, "prediction": guess, "max_new_tokens": 60}
    fast, plain = (editor.generate(CHAT, speculate=speculate, **options) for speculate in (True, False))
    assert fast.tokens == plain.tokens


def test_right_guesses_are_accepted(replay):
    said = '{"kind":"pear","count":12}'
    answer = replay(said).generate(CHAT, json_schema=SCHEMA, prediction=said)
    assert answer.text == said
    assert answer.stats.accepted_tokens > 20


def test_a_schema_that_is_none(editor):
    with pytest.raises(SpecEditError, match="cannot be followed"):
        editor.generate(CHAT, json_schema={"type": "nonsense"})
