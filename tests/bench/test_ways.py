"""What is timed by forcing a known answer is what decoding that answer takes."""

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers.generation import PromptLookupCandidateGenerator

from bench.ways import Ways
from specedit import Sampling, SpecEditor
from specedit.decoding.cost import FixedCost
from specedit.decoding.encode import encode_text
from specedit.decoding.loop import decode
from specedit.decoding.planner import Planner
from specedit.decoding.sampling import Sampler
from specedit.decoding.statistics import Statistics
from specedit.proposers import DEFAULT, Request, create
from specedit.replay import Forced, replay
from specedit.types import agreeing

pytestmark = pytest.mark.model

TEXT = "def greet(name):\n    return 'Hello ' + name\n\n\nprint(greet('world'))\n"
LIMIT = 60


@pytest.fixture(scope="module")
def editor():
    return SpecEditor.from_pretrained(dtype="float32")


@pytest.fixture(scope="module")
def request_(editor):
    """The demo's kind of edit."""
    prompt = editor.rewrite(
        TEXT, "Rename greet to hello.", max_new_tokens=1, speculate=False
    ).generation.prompt
    return Request(prompt, [TEXT], lambda text: encode_text(editor.tokenizer, text), editor.tokenizer.decode)


def test_replay_of_the_models_own_answer_makes_the_calls_of_live_decoding(editor, request_):
    def planner():
        return Planner(create(DEFAULT), FixedCost([1.0, 1.1, 1.2, 1.3, 1.4, 1.6, 2.0, 3.0, 5.0]))

    live = Statistics()
    sampler = Sampler(Sampling(), request_.prompt)
    options = {"max_tokens": LIMIT, "ends": lambda token: False, "stats": live}
    steps = decode(editor.target, request_, sampler, planner(), **options)
    answer = [token for tokens in steps for token in tokens]
    again = replay(editor.target, request_, answer, planner())
    assert (again.target_calls, again.tokens) == (live.target_calls, live.tokens)
    assert again.accepted == live.accepted


@pytest.mark.parametrize("way", ["transformers", "lookup"])
def test_generate_with_a_forced_answer_makes_the_calls_of_generate_by_itself(editor, request_, way):
    ways = Ways(editor)
    answer, alone = ways.run(way, request_, LIMIT, Sampler(Sampling(), request_.prompt))
    tokens, forced = ways.run(way, request_, len(answer), Forced(answer))
    assert tokens == answer
    assert forced["passes"] == alone["passes"]


def test_no_draft_is_wrong_of_who_knows_the_answer(editor, request_):
    ways = Ways(editor)
    answer = ways.knowing.answer = encode_text(editor.tokenizer, TEXT.replace("greet", "hello"))
    tokens, run = ways.run("knowing", request_, len(answer), Forced(answer))
    assert tokens == answer
    assert run["drafted"] == run["accepted"]
    assert run["passes"] < len(answer) / 4


def test_look_up_does_not_learn_the_forced_answer(editor, request_):
    """Its drafts are those of its own class, which is given the history alone."""
    answer = encode_text(editor.tokenizer, TEXT.replace("greet", "hello"))
    _, forced = Ways(editor).run("lookup", request_, len(answer), Forced(answer))
    limit = len(request_.prompt) + len(answer)
    lookup = PromptLookupCandidateGenerator(num_output_tokens=10, max_length=limit)
    passes = written = 0
    while written < len(answer):
        history = torch.tensor([[*request_.prompt, *answer[:written]]])
        draft = lookup.get_candidates(history)[0][0, history.shape[1] :].tolist()
        written += agreeing(draft, answer[written:]) + 1
        passes += 1
    assert forced["passes"] == passes


def test_the_weights_that_a_token_needs_are_counted(editor, monkeypatch):
    """The default model's table of embeddings is its last layer, too."""
    monkeypatch.setattr("bench.ways._COPIED", 1 << 20)
    floor = Ways(editor, AutoModelForCausalLM.from_config(editor.target.model.config)).floor()
    assert floor["bytes"] == pytest.approx(4 * 134.5e6, rel=0.01)
    assert floor["bandwidth"] > 1e8
