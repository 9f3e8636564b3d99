"""Text and chats to token ids, and back. Only a chat's template makes control tokens."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase, TokenizersBackend

from specedit.proposers import Request
from specedit.types import SpecEditError

Messages = Sequence[Mapping[str, Any]]


def encode_text(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of a text in which control tokens are ordinary characters."""
    return _ids(_splitting(tokenizer, text), text, add_special_tokens=False)


def encode_raw(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of a text in which control tokens count as such, with those that begin every text."""
    return _ids(tokenizer, text)


def decode_text(tokenizer: PreTrainedTokenizerBase, tokens: Sequence[int]) -> str:
    """The text of token ids, control tokens included. Bytes that are no whole character become U+FFFD."""
    if backend := _backend(tokenizer):
        return backend.decode(list(tokens), skip_special_tokens=False)
    return str(tokenizer.decode(list(tokens), clean_up_tokenization_spaces=False))


def make_request(
    tokenizer: PreTrainedTokenizerBase,
    prompt: Sequence[int],
    references: Sequence[str],
    language: str = "",
    ends: Iterable[int] = (),
    **about: Any,
) -> Request:
    """What proposers may know before an answer to a prompt of these token ids (see `Request`)."""
    encode, decode = partial(encode_text, tokenizer), partial(decode_text, tokenizer)
    # Lone surrogates cannot be encoded, and no answer has them.
    texts = [reference.encode("utf-8", "replace").decode() for reference in references]
    likeliest_first = sorted(ends, key=lambda token: (token != tokenizer.eos_token_id, token))
    return Request(prompt, texts, encode, decode, language, ends=likeliest_first, **about)


def encode_chat(
    tokenizer: PreTrainedTokenizerBase,
    messages: Messages,
    prefill: str,
    tools: Sequence[Mapping[str, Any]] = (),
) -> list[int]:
    """Token ids of a chat up to and with the beginning of its answer.

    Args:
        messages: with a role and a content, and what else the model's chat template knows.
        tools: that the model may call.

    Raises:
        SpecEditError: a message has no role or no text, or holds lone surrogates (bytes that did not decode);
            or the model's chat template does not take these messages or tools.
    """
    chat = [dict(message) for message in messages]
    if not all(isinstance(message.get(key), str) for message in chat for key in ("role", "content")):
        raise SpecEditError("A message needs a role and a content, both text.")
    check_texts(message["content"] for message in chat)
    if tools and "tools" not in str(tokenizer.chat_template):
        raise SpecEditError("The model's chat template knows no tools: choose another model, or ask without.")
    if not tokenizer.chat_template:
        text = "\n\n".join([*(message["content"] for message in chat), prefill])
        return _ids(_splitting(tokenizer, text), text)

    # A message with the text of a control token in it is encoded apart from the template around it. Other
    # messages are encoded with it, since tokens may reach across.
    controls = _controls(tokenizer)
    apart = {}
    for number, message in enumerate(chat):
        if any(control in message["content"] for control in controls):
            mark = f"\ue000{number}\ue001"  # private use: in no template and no special token
            apart[mark] = message["content"]
            message["content"] = mark
    # Names and arguments of tools stand in the middle of what the template writes.
    others = [{key: value for key, value in message.items() if key != "content"} for message in chat]
    if any(control in json.dumps([others, *tools], ensure_ascii=False) for control in controls):
        raise SpecEditError("A tool or a call of one holds control tokens of the model: leave them out.")
    text = _rendered(tokenizer, chat, tools) + prefill
    ids: list[int] = []
    for mark, content in apart.items():
        if text.count(mark) != 1:
            raise SpecEditError("A message holds control tokens of the model: leave them out.")
        before, _, text = text.partition(mark)
        ids += _ids(tokenizer, before, add_special_tokens=False) + encode_text(tokenizer, content)
    return ids + _ids(tokenizer, text, add_special_tokens=False)


def check_texts(texts: Iterable[str]) -> None:
    """Raises SpecEditError if these texts of a prompt hold lone surrogates (bytes that did not decode)."""
    try:
        "".join(texts).encode()
    except UnicodeEncodeError as error:
        raise SpecEditError(
            "The prompt holds bytes that are no text: write the instruction in UTF-8."
        ) from error


def _rendered(
    tokenizer: PreTrainedTokenizerBase, chat: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> str:
    options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True}
    try:
        return str(tokenizer.apply_chat_template(chat, tools=[*map(dict, tools)] or None, **options))
    except Exception as error:  # templates are programs: they fail in every way
        if len(chat) > 1 and chat[0]["role"] == "system":
            # Some models know no system role (gemma 2, the first Mistrals): say it at the user's beginning.
            first = chat[1] | {"content": f"{chat[0]['content']}\n\n{chat[1]['content']}"}
            return _rendered(tokenizer, [first, *chat[2:]], tools)
        raise SpecEditError(f"The model's chat template does not take these messages: {error}.") from error


def _ids(tokenizer: PreTrainedTokenizerBase, text: str, **options: bool) -> list[int]:
    return list(tokenizer(text, **options)["input_ids"])


def _splitting(tokenizer: PreTrainedTokenizerBase, text: str) -> PreTrainedTokenizerBase:
    """A tokenizer to which the control tokens in this text are ordinary characters."""
    return _other(tokenizer) if any(control in text for control in _controls(tokenizer)) else tokenizer


@lru_cache(maxsize=4)
def _controls(tokenizer: PreTrainedTokenizerBase) -> frozenset[str]:
    return frozenset([*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()])


@lru_cache(maxsize=4)
def _other(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """A copy that splits control tokens. That is a setting of the tokenizer, also when it is an argument of a
    call: threads would change it for one another."""
    other = copy.deepcopy(tokenizer)
    other.split_special_tokens = True
    other("", split_special_tokens=True)
    return other


@lru_cache(maxsize=4)
def _backend(tokenizer: PreTrainedTokenizerBase) -> Tokenizer | None:
    """What does all the work of decoding, if it does. Around it transformers looks at the type of every
    token, which takes as long again, and steps decode a few times."""
    made, base = type(tokenizer), TokenizersBackend
    whole = issubclass(made, base) and made._decode is base._decode and made.decode is base.decode
    return tokenizer.backend_tokenizer if whole else None


@lru_cache(maxsize=4)
def longest_token(tokenizer: PreTrainedTokenizerBase) -> int:
    """No token stands for more letters than this."""
    return max(map(len, tokenizer.get_vocab()))
