"""transformers' loading, made quiet, offline for local files, and strict about what it would only log."""

from __future__ import annotations

import contextlib
import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specedit.types import SpecEditError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


def from_pretrained(where: str | Path, dtype: torch.dtype) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load model and tokenizer of a hub id (str), or of a folder or `.gguf` file (Path), on the CPU.

    Raises:
        SpecEditError: weights are missing, or the checkpoint does another task.
        Exception: whatever transformers throws; `explain` turns it into a sentence.
    """
    from transformers import AutoTokenizer

    model = causal_lm(where, dtype)
    place, options = _options(where)
    tokenizer = AutoTokenizer.from_pretrained(place, **options)
    if "gguf_file" in options and isinstance(model.config.eos_token_id, int):
        # The file's end token: 5.17 reads it for the model only, and gives the tokenizer some default.
        tokenizer.eos_token = tokenizer.convert_ids_to_tokens(model.config.eos_token_id)
        tokenizer.clean_up_tokenization_spaces = False
    return model, tokenizer


def causal_lm(where: str | Path, dtype: torch.dtype) -> PreTrainedModel:
    """The model half of `from_pretrained`, in eval mode; a gguf file's weights are dequantised."""
    from transformers import AutoModelForCausalLM, GgufConfig

    place, options = _options(where)
    if "gguf_file" in options:
        # Left packed, a model cannot be saved, and verifying more than 8 tokens at once is slow.
        options["quantization_config"] = GgufConfig(dequantize=True)
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        place, dtype=dtype, output_loading_info=True, **options
    )
    model, info = loaded
    if info["missing_keys"]:  # transformers has filled them with random numbers
        raise SpecEditError(
            f"{where} lacks weights ({min(info['missing_keys'])}): fetch it again or choose another model."
        )
    other = ("ForMaskedLM", "Classification", "ForQuestionAnswering", "ForPreTraining")
    for saved_as in model.config.architectures or []:
        if saved_as.endswith(other):
            raise _not_causal(str(where), saved_as)
    return model.eval()


def _options(where: str | Path) -> tuple[str | Path, dict[str, Any]]:
    # trust_remote_code False, not unset: transformers asks on the terminal when it is unset.
    options: dict[str, Any] = {"trust_remote_code": False, "local_files_only": isinstance(where, Path)}
    if isinstance(where, Path) and where.is_file():
        return where.parent, options | {"gguf_file": where.name}
    return where, options


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers and the hub from writing to the terminal."""
    from huggingface_hub import utils as hub
    from transformers.utils import logging

    levels = logging.get_verbosity(), hub.logging.get_verbosity()
    bars, hub_bars = logging.is_progress_bar_enabled(), not hub.are_progress_bars_disabled()
    logging.set_verbosity(logging.CRITICAL)
    hub.logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    hub.disable_progress_bars()
    try:
        # The gguf reader has a progress bar that no setting turns off.
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.set_verbosity(levels[0])
        hub.logging.set_verbosity(levels[1])
        if bars:
            logging.enable_progress_bar()
        if hub_bars:
            hub.enable_progress_bars()


def explain(exc: Exception, name: str, *, hub: bool) -> SpecEditError:
    """The one sentence for whatever transformers, torch or the hub threw while loading `name`."""
    import torch
    from huggingface_hub import errors

    if isinstance(exc, SpecEditError):
        return exc
    chain: list[BaseException] = [exc]
    while (deeper := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(deeper)

    def caused_by(*kinds: type[BaseException]) -> bool:
        return any(isinstance(link, kinds) for link in chain)

    text = str(exc)
    if hub and caused_by(errors.GatedRepoError):
        say = f"{name} is gated: accept its terms on its hub page, run `hf auth login`, then try again."
    elif hub and caused_by(errors.RepositoryNotFoundError, errors.HFValidationError):
        say = f"The hub has no model {name}: check the spelling, or run `hf auth login` if it is private."
    elif hub and caused_by(errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled):
        say = (
            f"The hub cannot be reached and {name} is not in its cache: connect and try again, "
            f"or name a local model folder."
        )
    elif caused_by(torch.OutOfMemoryError, MemoryError):
        say = f"{name} does not fit into memory: choose a smaller model, bfloat16, or the cpu."
    elif "trust_remote_code" in text:
        say = f"{name} needs code from its own repository, which specedit never runs: choose another model."
    elif "Unrecognized configuration class" in text:
        found = re.search(r"\.(\w+)Config'>", text)
        return _not_causal(name, found[1] if found else "another kind")
    else:
        say = f"Could not load {name} ({first_sentence(exc)}): repair it or choose another model."
    return SpecEditError(say)


def first_sentence(exc: BaseException) -> str:
    """What an exception says, cut to fit inside one of ours."""
    text = " ".join(str(exc).split()) or type(exc).__name__
    return re.split(r"(?<=\w)[.!?](?= [A-Z])", text)[0].rstrip(".")[:300]


def _not_causal(name: str, found: str) -> SpecEditError:
    return SpecEditError(f"{name} is not a causal language model ({found}): choose one that generates text.")
