"""Text while it arrives."""

import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import ByteFallback, Fuse, Sequence
from tokenizers.models import BPE
from transformers import PreTrainedTokenizerFast

from specedit.decoding.text import TextStream
from specedit.types import SpecEditError

WORDS = ["one", " two", ";", ";;", "<0xE2>", "<0x82>", "<0xAC>", "<0x0A>"]


@pytest.fixture(scope="module")
def tokenizer():
    """Whole words, and bytes for what has none, as in the tokenizers of Llama 2 and Mistral."""
    inner = Tokenizer(BPE({word: number for number, word in enumerate(WORDS)}, [], byte_fallback=True))
    inner.decoder = Sequence([ByteFallback(), Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=inner)


def texts(stream, words):
    return [(stream.push(WORDS.index(word)), stream.take())[1] for word in words]


def test_a_character_comes_when_its_last_byte_does(tokenizer):
    pieces = texts(TextStream(tokenizer, []), ["one", "<0xE2>", "<0x82>", "<0xAC>", " two"])
    assert pieces == ["one", "", "", "€", " two"]


def test_bytes_that_are_no_character_do_not_end_the_answer(tokenizer):
    stream = TextStream(tokenizer, [])
    texts(stream, ["<0x0A>", "<0xE2>", "one", " two"])
    assert stream.text.endswith("one two")


def test_the_earliest_stop_string_in_a_token_counts(tokenizer):
    stream = TextStream(tokenizer, [], stop=["two", " t"])
    texts(stream, ["one", " two"])
    assert (stream.text, stream.matched_stop) == ("one", " t")


def test_what_may_begin_a_stop_string_is_held_back(tokenizer):
    stream = TextStream(tokenizer, [], stop=[";;;"])
    assert texts(stream, ["one", ";;", " two"]) == ["one", "", ";; two"]
    assert stream.take(final=True) == ""


def test_a_tokenizer_that_cannot_stream_is_refused():
    with pytest.raises(SpecEditError, match=r"tokenizer\.json"):
        TextStream(object(), [])
