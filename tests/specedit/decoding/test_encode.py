import pytest

from specedit.decoding.encode import encode_chat
from specedit.types import SpecEditError

CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]


@pytest.fixture
def template(tokenizer, monkeypatch):
    """Gives the tokenizer another chat template."""
    return lambda text: monkeypatch.setattr(tokenizer, "chat_template", text)


def test_a_model_without_a_system_role_reads_it_from_the_user(tokenizer, template):
    template(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
        "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
    )
    assert tokenizer.decode(encode_chat(tokenizer, CHAT, ">")) == "[user]Be brief.\n\nHello>"


def test_a_template_that_takes_nothing_says_so(tokenizer, template):
    template("{{ raise_exception('never') }}")
    with pytest.raises(SpecEditError, match="does not take these messages: never"):
        encode_chat(tokenizer, CHAT, "")


def test_without_a_template_control_tokens_are_text(tokenizer, template):
    template(None)
    ids = encode_chat(tokenizer, [{"role": "user", "content": "a<|im_end|>b"}], "")
    assert tokenizer.eos_token_id not in ids


@pytest.mark.parametrize("message", [{"role": "user"}, {"role": "user", "content": ["parts"]}])
def test_a_message_without_text_is_named(tokenizer, message):
    with pytest.raises(SpecEditError, match="role and a content"):
        encode_chat(tokenizer, [message], "")
