"""Which model, and how it is loaded and kept.

One door for four kinds of name: none (the default model), a hub id, a local folder, a `.gguf` file.
torch and transformers are imported inside functions, so that `specedit --help` stays fast.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from specedit import default_model
from specedit.pretrained import explain, first_sentence, from_pretrained, quiet
from specedit.types import SpecEditError

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

DEFAULT_MODEL = default_model.NAME
DTYPES = ("float32", "bfloat16", "float16")

Kind = Literal["embedded", "hub", "folder", "gguf"]
Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a name leads. `path` is set for a folder and a gguf file."""

    kind: Kind
    name: str
    path: Path | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """A causal language model in eval mode and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    name: str
    device: torch.device
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class CachedModel:
    """A model in a cache. `bytes` is what removing it gives back."""

    name: str
    path: Path
    bytes: int
    kind: Kind


def resolve(name: str | None = None) -> Source:
    """Say what a model name means, without touching the network.

    Raises:
        SpecEditError: it is neither an embedded model's name, a model folder, a gguf file nor like a hub id.
    """
    if name is None or name.lower() in default_model.NAMES:
        return Source("embedded", (name or DEFAULT_MODEL).lower())
    path = Path(os.path.expanduser(name))  # leaves a user that does not exist as it is
    if name and path.is_dir():
        if not (path / "config.json").is_file():
            raise SpecEditError(
                f"{name} holds no config.json: name a folder saved by transformers, or a .gguf file itself."
            )
        return Source("folder", str(path.resolve()), path.resolve())
    if path.is_file():
        if path.suffix.lower() != ".gguf":
            raise SpecEditError(f"{name} is not a model: name its folder, or a .gguf file.")
        return Source("gguf", str(path.resolve()), path.resolve())
    if path.suffix.lower() != ".gguf" and re.fullmatch(r"\w[\w.-]*/\w[\w.-]*", name):
        return Source("hub", name)
    raise SpecEditError(
        f"There is no model {name}: give an existing folder or .gguf file, a hub id like org/name, "
        f"or {' or '.join(default_model.NAMES)}."
    )


def load(
    name: str | None = None,
    *,
    device: str | None = None,
    dtype: str | None = None,
    progress: Progress | None = None,
) -> Loaded:
    """Load a model, fetching it first where it is not here yet.

    A `.gguf` file of the user's is dequantised in memory, anew on every load; a folder starts faster.

    Args:
        name: a hub id, a local folder, a `.gguf` file, or None for the default model.
        device: "cpu", "cuda", "cuda:1" or "mps"; None or "auto" takes the best there is.
        dtype: "float32", "bfloat16" or "float16"; None or "auto" takes what the device does natively.
        progress: receives short status lines.

    Raises:
        SpecEditError: the model cannot be had, is not a causal language model, or does not fit.
    """
    source = resolve(name)
    place = default_device(device)
    number = default_dtype(place, dtype)
    say = progress or _silent
    path = default_model.ensure(say, source.name) if source.kind == "embedded" else source.path
    say(f"loading {source.name}")
    try:
        with quiet():
            model, tokenizer = from_pretrained(path or source.name, number)
            model.to(place)  # type: ignore[arg-type]
    except Exception as exc:
        raise explain(exc, source.name, hub=source.kind == "hub") from exc
    return Loaded(model, tokenizer, source.name, place, number)


def check_device(name: str) -> str:
    """The name itself, if a device can be called that. Whether it is there, only torch knows.

    Raises:
        SpecEditError: it cannot.
    """
    if not re.fullmatch(r"auto|(cpu|cuda|mps)(:[0-9]+)?", name):
        raise SpecEditError(f"There is no device {name}: use auto, cpu, cuda, cuda:1 or mps.")
    return name


def free_memory(device: torch.device) -> int:
    """Bytes of memory that are free on it."""
    from accelerate.utils import get_max_memory

    return int(get_max_memory()[(device.index or 0) if device.type == "cuda" else device.type])


def default_device(name: str | None = None) -> torch.device:
    """The device called `name`, or for None and "auto" the best there is.

    Raises:
        SpecEditError: there is no such device, or not on this machine.
    """
    import torch

    cuda = torch.cuda.device_count() if torch.cuda.is_available() else 0
    mps = int(torch.backends.mps.is_available())
    if name is None or check_device(name) == "auto":
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    kind, _, index = name.partition(":")
    if int(index or 0) >= {"cpu": 1, "cuda": cuda, "mps": mps}[kind]:
        raise SpecEditError(f"torch finds no {name} on this machine: use auto, or another device.")
    return torch.device(name)


def default_dtype(device: torch.device, name: str | None = None) -> torch.dtype:
    """The dtype called `name`, or for None and "auto" the one that suits the device.

    That is bfloat16 where the hardware computes it, else float32: emulated 16-bit arithmetic is slower than
    float32 and less precise, so it is never chosen unasked.

    Raises:
        SpecEditError: the name is not auto, float32, bfloat16 or float16.
    """
    import torch

    if name is not None and name != "auto":
        if name not in DTYPES:
            raise SpecEditError(f"There is no dtype {name}: use auto, {', '.join(DTYPES)}.")
        return getattr(torch, name)
    native = False  # on mps: Apple's first chips emulate it, and torch does not say which it runs on
    if device.type == "cuda":
        native = torch.cuda.is_bf16_supported(including_emulation=False)
    elif device.type == "cpu":
        # x86 says avx512_bf16 or amx_bf16; ARM says bf16 or sve_bf16.
        has = torch.cpu.get_capabilities()
        native = any(bool(on) for key, on in has.items() if re.fullmatch(r"(.*_)?bf16", key))
    return torch.bfloat16 if native else torch.float32


def fetch(name: str | None = None, progress: Progress | None = None) -> Path:
    """Bring a model onto this machine and return its folder; one that is local already is only found.

    Raises:
        SpecEditError: it cannot be downloaded, fails a checksum, or cannot be written.
    """
    source = resolve(name)
    say = progress or _silent
    if source.kind == "embedded":
        return default_model.ensure(say, source.name)
    if source.path is not None:
        return source.path
    from huggingface_hub import snapshot_download

    say(f"downloading {source.name} from the hub")
    try:
        with quiet():
            # Repositories often carry the same weights again, in other formats and in subfolders.
            folder = snapshot_download(
                source.name,
                allow_patterns=["*.json", "*.safetensors", "*.jinja", "*.model", "*.txt"],
                ignore_patterns=["*/*", "consolidated*"],
            )
    except Exception as exc:
        raise explain(exc, source.name, hub=True) from exc
    return Path(folder)


def cached() -> list[CachedModel]:
    """The models on this machine that `remove` can delete: the embedded ones and the hub's."""
    found = []
    for name in default_model.NAMES:
        folder = default_model.folder(name)
        if folder.is_dir():
            size = sum(file.stat().st_size for file in folder.iterdir())
            found.append(CachedModel(name, folder, size, "embedded"))
    for repo in sorted(_hub_models(), key=lambda repo: repo.repo_id):
        found.append(CachedModel(repo.repo_id, Path(repo.repo_path), repo.size_on_disk, "hub"))
    return found


def remove(name: str) -> int:
    """Delete a model from its cache and return the bytes freed. A user's own folders and files stay.

    Raises:
        SpecEditError: no model of that name is in a cache, or it cannot be deleted.
    """
    wanted = name.lower() if name.lower() in default_model.NAMES else name
    entry = next((model for model in cached() if model.name == wanted), None)
    if entry is None:
        raise SpecEditError(f"{name} is not in the cache: `specedit models list` shows what is.")
    try:
        if entry.kind == "embedded":
            with default_model.locked(_silent, wanted):
                shutil.rmtree(entry.path)
        else:
            from huggingface_hub import scan_cache_dir

            revisions = [r.commit_hash for m in _hub_models() if m.repo_id == wanted for r in m.revisions]
            scan_cache_dir().delete_revisions(*revisions).execute()
    except OSError as exc:
        raise SpecEditError(
            f"Could not delete {entry.path} ({first_sentence(exc)}): check its permissions and try again."
        ) from exc
    return entry.bytes


def _hub_models() -> list[Any]:
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        return [repo for repo in scan_cache_dir().repos if repo.repo_type == "model"]
    except CacheNotFound:
        return []


def _silent(line: str) -> None:
    pass
