"""What the models of this package have in common: both ask through the `openai` client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from openai import APIConnectionError, OpenAI

from specedit.integrations.http.client import DEFAULT_URL
from specedit.types import SpecEditError

BASE_URL = f"{DEFAULT_URL}/v1"
_MOST = 64  # references that the server takes with one request


def hints(prediction: str = "", references: Sequence[str] = (), language: str = "") -> dict[str, Any]:
    """Arguments of the client that tell the server what the answer may repeat.

    They make it come faster, and never change it.

    Args:
        prediction: what the answer will be, roughly.
        references: other texts that it may repeat.
        language: of the prediction or the first reference, as written after a code fence.
    """
    told: dict[str, Any] = {}
    if prediction:
        told["prediction"] = {"type": "content", "content": prediction}
    if references or language:
        told["extra_body"] = {"specedit": {"references": list(references[:_MOST]), "language": language}}
    return told


@contextmanager
def reaching(client: OpenAI) -> Iterator[None]:
    """Say what to do where nobody answers."""
    try:
        yield
    except APIConnectionError as error:
        raise SpecEditError(
            f"No answer from {client.base_url}: see whether `specedit serve` runs there."
        ) from error
