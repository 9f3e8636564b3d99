"""specedit with a model that llama.cpp runs: a tiny Llama with random weights, and the default model."""

import random
import warnings

import gguf
import numpy as np
import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer
from transformers import LlamaForCausalLM, PreTrainedTokenizerFast

from specedit import Sampling, SpecEditError, SpecEditor
from specedit.decoding.cost import CostCurve
from specedit.decoding.loop import decode
from specedit.decoding.planner import Planner
from specedit.decoding.sampling import Sampler
from specedit.decoding.statistics import Statistics
from specedit.proposers import Proposer, Request
from specedit.targets.hf import HFTarget
from specedit.types import Draft

pytest.importorskip("llama_cpp", reason="llama-cpp-python is built from source: pip install llama-cpp-python")

from specedit.integrations.llamacpp import LlamaCppTarget, editor
from specedit.integrations.llamacpp.convert import convert, default_gguf

TEXT = "def load(path):\n    return open(path).read()\n\n\nprint(load('a'), load('b2'), 1000)\n"
FLAT = CostCurve([1.0] * 9)  # drafting as much as possible is what finds faults
NEARLY = {"atol": 1e-5, "rtol": 1e-5}
SAMPLINGS = [
    Sampling(),
    Sampling(temperature=0.8, seed=1),
    Sampling(temperature=1.2, top_p=0.9, presence_penalty=0.5, seed=2),
]


@pytest.fixture(scope="module")
def folder(tokenizer, llama, tmp_path_factory):
    """The small Llama with a trained byte-level BPE, as transformers saves it."""
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    bpe = Tokenizer(BPE())
    bpe.pre_tokenizer, bpe.decoder = ByteLevel(add_prefix_space=False), ByteLevelDecoder()
    alphabet = ByteLevel.alphabet()
    trainer = BpeTrainer(
        vocab_size=320, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    bpe.train_from_iterator([TEXT], trainer)
    trained = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        bos_token=special[1],
        eos_token=special[2],
        chat_template=tokenizer.chat_template,
        clean_up_tokenization_spaces=False,
    )
    path = tmp_path_factory.mktemp("llama")
    trained.save_pretrained(path)
    llama(trained).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def path(folder, tmp_path_factory):
    """The same as a file of float32 weights."""
    path = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    convert(folder, path, "F32", splitting="gpt-2")
    return path


@pytest.fixture(scope="module")
def target(path):
    return LlamaCppTarget(path, n_ctx=512, n_batch=64)


@pytest.fixture(scope="module")
def tiny(path):
    """An editor with the tiny model that drafts as much as it can."""
    made = editor(path, n_ctx=1024)
    return SpecEditor(made.target, made.tokenizer, cost=FLAT)


def some_prompt(seed: int, length: int = 20) -> list[int]:
    rng = random.Random(seed)
    return [rng.randrange(3, 256) for _ in range(length)] * 2


class Fixed(Proposer):
    """Drafts from a text that it is given, right or wrong."""

    name = "fixed"

    def __init__(self, text, prompt):
        self.text, self.prompt = list(text), len(prompt)

    def propose(self, history, limit):
        return [Draft(self.text[len(history) - self.prompt :][:limit], match=9)]


def run(target, prompt, proposers=(), sampling=SAMPLINGS[0], max_tokens=60, stats=None):
    steps = decode(
        target,
        Request(prompt, [], lambda text: [], str),
        Sampler(sampling, prompt),
        Planner(proposers, FLAT) if proposers else None,
        max_tokens=max_tokens,
        ends=lambda token: False,
        stats=stats or Statistics(),
    )
    return [token for tokens in steps for token in tokens]


# The text is that of plain decoding


@pytest.mark.parametrize("sampling", SAMPLINGS)
@pytest.mark.parametrize("seed", range(3))
def test_drafts_change_nothing(target, sampling, seed):
    prompt, stats = some_prompt(seed), Statistics()
    plain = run(target, prompt, sampling=sampling)
    wrong = [*plain[:11], (plain[11] + 1) % 256, *plain[12:]]
    for draft in (plain, wrong):
        assert run(target, prompt, [Fixed(draft, prompt)], sampling, stats=stats) == plain
    assert stats.accepted_tokens > 60
    assert stats.rejected_tokens > 0


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_proposers_change_nothing(tiny, sampling):
    asked = [{"role": "user", "content": TEXT}]
    options = {"prediction": TEXT, "sampling": sampling, "max_new_tokens": 200}
    plain = tiny.generate(asked, **options, speculate=False)
    speculated = tiny.generate(asked, **options)
    assert speculated.tokens == plain.tokens
    if sampling.temperature == 0:  # it repeats itself
        assert speculated.stats.target_calls < plain.stats.target_calls / 3
    else:  # what it writes is random
        assert speculated.stats.rejected_tokens > 0


def test_the_logits_are_those_of_transformers(target, folder):
    theirs = HFTarget(LlamaForCausalLM.from_pretrained(folder))
    target.reset()
    for tokens in (some_prompt(0), [5], [7, 8, 9]):
        torch.testing.assert_close(target.extend(tokens), theirs.extend(tokens), **NEARLY)


# Contexts


@pytest.mark.parametrize("wrong", [1, 5, 100])  # within a batch of 64 and beyond
@pytest.mark.parametrize("before", [3, 150])
def test_a_rollback_leaves_no_trace(target, before, wrong):
    context = some_prompt(1, before)
    target.reset()
    target.extend(context)
    expected = target.extend([5, 6, 7])

    target.reset()
    target.extend(context)
    target.extend([9] * wrong)
    target.keep([])
    assert target.length == len(context)
    torch.testing.assert_close(target.extend([5, 6, 7]), expected)


def test_a_part_of_a_block_can_be_kept(target):
    target.reset()
    target.extend(some_prompt(2))
    target.extend([5, 6, 7, 9, 9, 9])
    target.keep(range(3))
    kept = target.extend([8])

    target.reset()
    target.extend([*some_prompt(2), 5, 6, 7])
    torch.testing.assert_close(target.extend([8]), kept)


def test_a_long_prompt_goes_in_chunks(target, path):
    whole = LlamaCppTarget(path, n_ctx=512, n_batch=512)
    prompt = some_prompt(3, 100)
    target.reset()
    rows = target.extend(prompt)
    torch.testing.assert_close(rows, whole.extend(prompt), **NEARLY)
    torch.testing.assert_close(target.extend([5, 6]), whole.extend([5, 6]), **NEARLY)


@pytest.mark.parametrize("length", [1, 64, 65, 200])
def test_the_last_row_alone_is_the_last_row(target, length):
    prompt = some_prompt(4, length)[:length]
    target.reset()
    rows = target.extend(prompt)
    target.reset()
    torch.testing.assert_close(target.extend(prompt, last_only=True), rows[-1:])


def test_what_was_returned_stays_as_it_was(target):
    target.reset()
    rows = target.extend([5, 6])
    before = rows.clone()
    target.extend([9] * 300)
    assert rows.equal(before)


def test_only_the_latest_tokens_can_be_rolled_back(target):
    target.reset()
    target.extend(some_prompt(5))
    target.extend([1, 2])
    with pytest.raises(ValueError, match="latest 2"):
        target.keep(range(3))


def test_tokens_that_the_model_does_not_have(target):
    target.reset()
    target.extend([5, 6])
    with pytest.raises(SpecEditError, match="give the tokenizer that belongs to it"):
        target.extend([7, 99_999])
    assert target.length == 2


def test_trees_are_refused(target):
    target.reset()
    with pytest.raises(ValueError, match="chains"):
        target.extend([1, 2, 3], [0, 0])


def test_a_full_context_ends_the_answer(path):
    full = editor(path, n_ctx=64)
    answer = full.generate(some_prompt(6), sampling=Sampling(logit_bias={0: -100.0, 2: -100.0}))
    assert (len(answer.prompt), len(answer.tokens), answer.finish_reason) == (40, 24, "length")
    with pytest.raises(SpecEditError, match="holds 64"):
        full.generate(some_prompt(6, 32))


def test_a_context_that_is_overrun_is_as_it_was(path):
    target = LlamaCppTarget(path, n_ctx=256, n_batch=64)
    target.extend(some_prompt(7, 64))
    with pytest.raises(SpecEditError, match="shorter file"):
        target.extend([5] * 150)  # its first 64 fit
    assert target.length == 128
    after = target.extend([5, 6, 7])
    target.reset()
    target.extend(some_prompt(7, 64))
    torch.testing.assert_close(target.extend([5, 6, 7]), after)


# Models


def test_the_file_brings_its_tokenizer(tiny, folder):
    ours, theirs = tiny.tokenizer, PreTrainedTokenizerFast.from_pretrained(folder)
    assert ours(TEXT).input_ids == theirs(TEXT).input_ids
    assert ours.chat_template == theirs.chat_template
    assert tiny.target.eos_token_ids == {0, 2}  # llama.cpp knows by their names which tokens end an answer


def test_a_tokenizer_that_splits_otherwise_is_told(folder, tmp_path):
    other = tmp_path / "other.gguf"
    convert(folder, other, "F32", splitting="smollm")  # single digits, which transformers does not know
    with pytest.warns(UserWarning, match="give tokenizer="):
        editor(other)


def test_another_format_is_nearly_the_same(folder, path, tmp_path):
    convert(folder, tmp_path / "b.gguf", "BF16", splitting="gpt-2")
    exact, near = LlamaCppTarget(path), LlamaCppTarget(tmp_path / "b.gguf")
    assert near.name.endswith("BF16")
    torch.testing.assert_close(near.extend([5, 6, 7]), exact.extend([5, 6, 7]), atol=0.05, rtol=0.05)


def test_llama_cpp_is_silent_unless_asked(path, capfd):
    editor(path).generate([5, 6], max_new_tokens=2)
    assert capfd.readouterr() == ("", "")
    LlamaCppTarget(path, verbose=True)
    assert "llama" in capfd.readouterr().err


def test_the_context_is_the_models_up_to_a_limit(path):
    assert LlamaCppTarget(path).max_length == 16384  # the model was made for 65,536


def test_a_closed_target_gives_its_memory_back(path):
    target = LlamaCppTarget(path)
    target.close()
    assert not target.close.alive


def write_mamba(path):
    """A recurrent model of random weights, with the 260 tokens that it needs."""
    rng = np.random.default_rng(0)
    width, state, rank = 16, 4, 1
    letters = sorted(ByteLevel.alphabet())
    file = gguf.GGUFWriter(path, "mamba")
    file.add_context_length(512)
    file.add_embedding_length(width)
    file.add_feed_forward_length(0)
    file.add_head_count(0)
    file.add_block_count(1)
    file.add_ssm_conv_kernel(4)
    file.add_ssm_inner_size(2 * width)
    file.add_ssm_state_size(state)
    file.add_ssm_time_step_rank(rank)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_tokenizer_model("gpt2")
    file.add_tokenizer_pre("gpt-2")
    file.add_token_list([*letters, "ab", "<|im_end|>"])
    file.add_token_types([gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.CONTROL])
    file.add_token_merges(["a b"])
    file.add_eos_token_id(257)
    for name, shape in {
        "token_embd.weight": (258, width),
        "output_norm.weight": (width,),
        "blk.0.attn_norm.weight": (width,),
        "blk.0.ssm_in.weight": (4 * width, width),
        "blk.0.ssm_conv1d.weight": (2 * width, 4),
        "blk.0.ssm_conv1d.bias": (2 * width,),
        "blk.0.ssm_x.weight": (rank + 2 * state, 2 * width),
        "blk.0.ssm_dt.weight": (2 * width, rank),
        "blk.0.ssm_dt.bias": (2 * width,),
        "blk.0.ssm_a": (2 * width, state),
        "blk.0.ssm_d": (2 * width,),
        "blk.0.ssm_out.weight": (width, 2 * width),
    }.items():
        weight = rng.standard_normal(shape, dtype=np.float32)
        file.add_tensor(name, -np.abs(weight) if name.endswith("_a") else weight)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def test_a_recurrent_model_is_decoded_plainly(tmp_path):
    write_mamba(tmp_path / "mamba.gguf")
    with pytest.warns(UserWarning, match="decoded plainly"):
        recurrent = editor(tmp_path / "mamba.gguf")
    assert not recurrent.target.can_rollback
    answers = [recurrent.generate([5, 6, 7] * 5, max_new_tokens=20).tokens for _ in range(2)]
    assert answers[0] == answers[1]  # nothing of the first answer was left
    recurrent.target.reset()
    rows = recurrent.target.extend([5, 6, 7] * 5)
    recurrent.target.reset()
    single = [recurrent.target.extend([token])[0] for token in [5, 6, 7] * 5]
    torch.testing.assert_close(torch.stack(single), rows, **NEARLY)


# What a user can do wrong


def sentence(caught) -> str:
    text = str(caught.value)
    assert "\n" not in text
    assert text.endswith(".")
    return text


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SpecEditError, match=r"name a \.gguf file") as caught:
        editor(tmp_path / "absent.gguf")
    sentence(caught)


def test_a_broken_file(tmp_path, capfd):
    (tmp_path / "broken.gguf").write_bytes(b"GGUF" + bytes(100))
    with pytest.raises(SpecEditError, match="cannot load") as caught:
        editor(tmp_path / "broken.gguf")
    sentence(caught)
    assert capfd.readouterr() == ("", "")


def test_a_setting_that_llama_cpp_does_not_have(path):
    with pytest.raises(SpecEditError, match="no setting n_layers_on_gpu") as caught:
        editor(path, n_layers_on_gpu=3)
    sentence(caught)


def test_a_tokenizer_of_another_model(path, tmp_path):
    with pytest.raises(SpecEditError, match="Could not load") as caught:
        editor(path, tokenizer=str(tmp_path))
    sentence(caught)


def test_a_format_for_a_file_that_has_one(path):
    with pytest.raises(SpecEditError, match="leave the dtype out") as caught:
        SpecEditor.from_pretrained(f"llamacpp:{path}", dtype="float32")
    sentence(caught)


def test_a_device_that_llama_cpp_does_not_know(path):
    with pytest.raises(SpecEditError, match="leave the device out") as caught:
        SpecEditor.from_pretrained(f"llamacpp:{path}", device="cuda:1")
    sentence(caught)


def test_a_proposer_that_there_is_not(path):
    with pytest.raises(SpecEditError, match="There is no proposer"):
        editor(path, proposers=["crystal_ball"])


@pytest.mark.parametrize("device", [None, "auto", "cpu"])
def test_the_name_of_a_model_can_say_that_llama_cpp_runs_it(path, device):
    named = SpecEditor.from_pretrained(f"llamacpp:{path}", device=device, kept=0)
    assert named.target.name.startswith(f"{path} cpu")
    assert [proposer.name for proposer in named.proposers] == ["structural", "predicted", "ngram"]


# The true default model


@pytest.mark.model
def test_the_default_model_renames_as_it_does_plainly():
    text = "def load(path):\n    return open(path).read()\n\n\nprint(load('a'))\n"
    file = default_gguf("F32")
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # its tokenizer is the one that llama.cpp has
        made = editor(file, tokenizer=str(file.parent), n_ctx=1024)
    default = SpecEditor(made.target, made.tokenizer, cost=FLAT)
    plain = default.rewrite(text, "Rename load to read_config.", name="a.py", speculate=False)
    result = default.rewrite(text, "Rename load to read_config.", name="a.py")
    assert result.text == text.replace("load", "read_config")
    assert result.generation.tokens == plain.generation.tokens
    assert result.stats.target_calls < plain.stats.target_calls / 3
