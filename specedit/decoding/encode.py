"""Text and chats to token ids. Only a chat's template makes control tokens; what users wrote stays text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from transformers import PreTrainedTokenizerBase

from specedit.types import SpecEditError

Messages = Sequence[Mapping[str, str]]


def encode_text(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Token ids of a text in which control tokens are ordinary characters."""
    return _ids(tokenizer, text, add_special_tokens=False, split_special_tokens=True)


def encode_chat(tokenizer: PreTrainedTokenizerBase, messages: Messages, prefill: str) -> list[int]:
    """Token ids of a chat up to and with the beginning of its answer.

    Raises:
        SpecEditError: a message holds lone surrogates, which are bytes that did not decode.
    """
    chat = [dict(message) for message in messages]
    try:
        "".join(message["content"] for message in chat).encode()
    except UnicodeEncodeError as error:
        raise SpecEditError(
            "The prompt holds bytes that are no text: write the instruction in UTF-8."
        ) from error
    if not tokenizer.chat_template:
        return _ids(tokenizer, "\n\n".join([*(message["content"] for message in chat), prefill]))

    # A message with the text of a control token in it is encoded apart from the template around it. Other
    # messages are encoded with it, since tokens may reach across.
    controls = [*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()]
    apart = {}
    for number, message in enumerate(chat):
        if any(control in message["content"] for control in controls):
            mark = f"\ue000{number}\ue001"  # private use: in no template and no special token
            apart[mark] = message["content"]
            message["content"] = mark
    text = str(tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)) + prefill
    ids: list[int] = []
    for mark, content in apart.items():
        before, _, text = text.partition(mark)
        ids += _ids(tokenizer, before, add_special_tokens=False) + encode_text(tokenizer, content)
    return ids + _ids(tokenizer, text, add_special_tokens=False)


def _ids(tokenizer: PreTrainedTokenizerBase, text: str, **options: bool) -> list[int]:
    return list(tokenizer(text, **options)["input_ids"])
