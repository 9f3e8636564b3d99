"""Completions of texts and token ids."""

import pytest


def test_answer(serve, replay):
    reply = serve(replay("four five")).openai.completions.create(model="default", prompt="one two three ")
    assert reply.choices[0].text == "four five"
    assert reply.choices[0].finish_reason == "stop"


def test_sixteen_tokens_by_default(serve, replay):
    reply = serve(replay("a" * 50)).openai.completions.create(model="default", prompt="a")
    assert reply.usage.completion_tokens == 16
    assert reply.choices[0].finish_reason == "length"


def test_token_ids_are_what_the_text_says(small, tokenizer):
    text = "def load(path):\n"
    replies = [
        small.openai.completions.create(model="default", prompt=prompt, max_tokens=8).choices[0].text
        for prompt in (text, tokenizer(text).input_ids, [text], [tokenizer(text).input_ids])
    ]
    assert len(set(replies)) == 1


def test_several_prompts_with_several_answers(small):
    options = {"model": "default", "temperature": 1, "seed": 1, "max_tokens": 6}
    reply = small.openai.completions.create(prompt=["abc", "x = "], n=2, **options)
    alone = [small.openai.completions.create(prompt=p, n=2, **options) for p in ("abc", "x = ")]
    assert [choice.index for choice in reply.choices] == [0, 1, 2, 3]
    assert [c.text for c in reply.choices] == [c.text for one in alone for c in one.choices]
    assert reply.usage.prompt_tokens == sum(one.usage.prompt_tokens for one in alone)


@pytest.mark.parametrize("logprobs", [None, 0, 2])
def test_streaming_gives_the_same(small, logprobs):
    options = {"model": "default", "prompt": "x = 1\n" * 5, "max_tokens": 20, "logprobs": logprobs}
    whole = small.openai.completions.create(**options).choices[0]
    parts = [chunk.choices[0] for chunk in small.openai.completions.create(stream=True, **options)]
    assert "".join(part.text for part in parts) == whole.text
    assert parts[-1].finish_reason == whole.finish_reason
    if logprobs is None:
        assert whole.logprobs is None
    else:
        tokens = [token for part in parts if part.logprobs for token in part.logprobs.tokens]
        assert tokens == whole.logprobs.tokens
        assert whole.logprobs.text_offset == list(range(len(whole.text)))
        assert all(len(top) == logprobs for top in whole.logprobs.top_logprobs)


@pytest.mark.parametrize(
    ("field", "value"), [("suffix", "x"), ("echo", True), ("best_of", 2), ("prompt", [999999]), ("n", 17)]
)
def test_what_is_not_supported_is_named(small, field, value):
    reply = small.http.post("/v1/completions", json={"prompt": "x", "max_tokens": 2, field: value})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == field
