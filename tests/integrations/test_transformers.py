"""specedit inside transformers' own `generate`, with a small real model."""

from functools import partial

import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList, StoppingCriteria, StoppingCriteriaList
from transformers.generation.streamers import BaseStreamer

from specedit.integrations.transformers import candidates, speculate

TEXT = "def load(path):\n    return path\n\n\nload(1)\nload(2)\n"


@pytest.fixture(scope="module")
def model(llama, tokenizer):
    model = llama(tokenizer).eval()
    model.generation_config.pad_token_id = tokenizer.eos_token_id
    return model


@pytest.fixture(scope="module")
def asked(tokenizer):
    return tokenizer(TEXT * 2, return_tensors="pt")


@pytest.fixture(scope="module")
def guess(model, tokenizer, asked):
    """What the model will write."""
    written = model.generate(**asked, max_new_tokens=60, do_sample=False)
    return tokenizer.decode(written[0, asked.input_ids.shape[1] :])


class NoFive(LogitsProcessor):
    """Never the token 5, nor that of a place's number."""

    def __call__(self, input_ids, scores):
        scores = scores.clone()
        scores[:, [5, input_ids.shape[1] % 256]] = -torch.inf
        return scores


class AfterSome(StoppingCriteria):
    """Ends with a token that a seventh divides."""

    def __call__(self, input_ids, scores, **_):
        return input_ids[:, -1] % 7 == 0


class Recorder(BaseStreamer):
    def __init__(self):
        self.tokens, self.ended = [], False

    def put(self, value):
        self.tokens += value.flatten().tolist()

    def end(self):
        self.ended = True


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"repetition_penalty": 1.3},
        {"no_repeat_ngram_size": 3},
        {"min_new_tokens": 20},
        {"logits_processor": LogitsProcessorList([NoFive()])},
        {"stopping_criteria": StoppingCriteriaList([AfterSome()])},
    ],
)
def test_the_tokens_are_those_of_generate(model, tokenizer, asked, guess, options):
    options = {"max_new_tokens": 60, "do_sample": False} | options
    expected = model.generate(**asked, **options)
    for ours in (
        speculate,
        partial(speculate, tokenizer=tokenizer),
        partial(speculate, tokenizer=tokenizer, prediction=guess),
        partial(speculate, proposers=()),
    ):
        assert model.generate(**asked, **options, custom_generate=ours).tolist() == expected.tolist()


def test_it_takes_fewer_passes(model, tokenizer, asked, guess):
    took = []
    ours = partial(speculate, tokenizer=tokenizer, prediction=guess, statistics=took)
    model.generate(**asked, max_new_tokens=60, do_sample=False, custom_generate=ours)
    assert took[0].tokens == 60
    assert took[0].target_calls < 30


def test_a_streamer_gets_every_token(model, asked):
    streamer = Recorder()
    written = model.generate(**asked, max_new_tokens=30, custom_generate=speculate, streamer=streamer)
    assert streamer.tokens == written[0].tolist()
    assert streamer.ended


def test_a_batch_with_padding(model, tokenizer):
    long, short = (tokenizer(text).input_ids for text in (TEXT, TEXT[:20]))
    missing = len(long) - len(short)
    both = {
        "input_ids": torch.tensor([long, [tokenizer.eos_token_id] * missing + short]),
        "attention_mask": torch.tensor([[1] * len(long), [0] * missing + [1] * len(short)]),
    }
    options = {"max_new_tokens": 20, "do_sample": False}
    expected = model.generate(**both, **options)
    assert model.generate(**both, **options, custom_generate=speculate).tolist() == expected.tolist()


def test_sampling_depends_on_the_seed_alone(model, asked, guess, tokenizer):
    def sampled(seed, **options):
        torch.manual_seed(seed)
        ours = partial(speculate, tokenizer=tokenizer, **options)
        return model.generate(
            **asked, max_new_tokens=40, do_sample=True, temperature=0.7, top_k=20, custom_generate=ours
        ).tolist()

    assert sampled(1, prediction=guess) == sampled(1, proposers=()) != sampled(2, proposers=())


def test_an_output_object_has_the_sequences(model, asked):
    options = {"max_new_tokens": 5, "custom_generate": speculate}
    output = model.generate(**asked, **options, return_dict_in_generate=True)
    assert output.sequences.tolist() == model.generate(**asked, **options).tolist()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"num_beams": 2}, "num_beams=1"),
        ({"output_scores": True, "return_dict_in_generate": True}, "keeps no scores"),
    ],
)
def test_what_it_does_not_do_is_said(model, asked, options, says):
    with pytest.raises(ValueError, match=says):
        model.generate(**asked, max_new_tokens=5, custom_generate=speculate, **options)


def test_candidates_for_assisted_decoding(model, tokenizer, asked, guess):
    options = {"max_new_tokens": 60, "do_sample": False}
    expected = model.generate(**asked, **options)
    passes = []
    hook = model.register_forward_pre_hook(lambda *_: passes.append(1))
    with candidates(model, tokenizer, prediction=guess):
        written = model.generate(**asked, **options, prompt_lookup_num_tokens=1)
    hook.remove()
    assert written.tolist() == expected.tolist()
    assert len(passes) < 40
    assert "_get_candidate_generator" not in vars(model)
