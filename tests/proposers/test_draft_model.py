import pytest
from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from specedit import Sampling, SpecEditor
from specedit.decoding.cost import FixedCost
from specedit.targets.hf import HFTarget
from specedit.types import SpecEditError

FLAT = FixedCost([1.0] * 9)  # seconds: every draft pays


@pytest.fixture
def rewrite(edit_model, tokenizer, edits):
    """rewrite("draft_model:…"): what becomes of a file, with this proposer alone."""
    target = HFTarget(AutoModelForCausalLM.from_pretrained(edit_model))

    def with_proposer(*proposers: str, **options):
        editor = SpecEditor(target, tokenizer, proposers, cost=FLAT)
        edit = edits["rename"]
        return editor.rewrite(edit.old.decode(), edit.instruction, name=edit.name, **options)

    return with_proposer


@pytest.fixture(scope="session")
def other_vocabulary(edit_model, tokenizer, tmp_path_factory):
    """The model that knows the edits, with its tokens numbered the other way round."""
    size = len(tokenizer)
    vocabulary = {token: size - 1 - number for token, number in tokenizer.get_vocab().items()}
    special = {
        token: vocabulary.pop(token)
        for token in [*tokenizer.all_special_tokens, "<|im_start|>"]
        if token in vocabulary
    }
    reversed_ = Tokenizer(BPE(vocabulary | special, []))
    reversed_.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    reversed_.decoder = ByteLevelDecoder()
    reversed_.add_special_tokens(list(special))
    model = AutoModelForCausalLM.from_pretrained(edit_model)
    model.get_input_embeddings().weight.data = model.get_input_embeddings().weight.data.flip(0)
    model.tie_weights()
    folder = tmp_path_factory.mktemp("other")
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=reversed_, eos_token="<|im_end|>").save_pretrained(folder)
    return folder


def agrees(result) -> bool:
    """Whether nearly all that was drafted was right; the answer may end within a draft."""
    return result.stats.accepted_tokens > 0.8 * sum(result.stats.drafted.values()) > 0


def test_what_the_draft_model_knows_is_accepted(rewrite, edit_model, edits):
    result = rewrite(f"draft_model:{edit_model}")
    assert result.data == edits["rename"].new
    assert agrees(result)


@pytest.mark.parametrize("sampling", [Sampling(temperature=1.5, seed=3), Sampling(repetition_penalty=1.3)])
def test_it_draws_as_the_target_does(rewrite, edit_model, sampling):
    plain = rewrite(sampling=sampling, max_new_tokens=60)
    drafted = rewrite(f"draft_model:{edit_model}", sampling=sampling, max_new_tokens=60)
    assert drafted.generation.tokens == plain.generation.tokens
    assert agrees(drafted)


def test_a_wrong_draft_model_changes_nothing(rewrite, llama, tokenizer, tmp_path, edits):
    llama(tokenizer).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    result = rewrite(f"draft_model:{tmp_path}")
    assert result.data == edits["rename"].new
    assert result.stats.rejected_tokens > 0


def test_another_vocabulary_is_taken_over_as_text(rewrite, other_vocabulary, edits):
    result = rewrite(f"draft_model:{other_vocabulary}")
    assert result.data == edits["rename"].new
    assert agrees(result)


def test_one_that_does_not_fit_is_left_out(rewrite, edit_model, edits, monkeypatch):
    monkeypatch.setattr("accelerate.utils.get_max_memory", lambda: {"cpu": 1000})
    with pytest.warns(UserWarning, match=r"draft model .* is left out: it lacks .* GiB"):
        result = rewrite(f"draft_model:{edit_model}")
    assert result.data == edits["rename"].new


def test_the_first_layers_share_the_weights(rewrite, edit_model, edits):
    result = rewrite("early_exit:1")
    assert result.data == edits["rename"].new
    assert result.stats.drafted["early_exit"] > 0


@pytest.mark.parametrize("layers", ["0", "2", "many", ""])
def test_layers_that_there_are_not_are_refused(rewrite, layers):
    with pytest.raises(SpecEditError, match="takes 1 to 1 layers"):
        rewrite(f"early_exit:{layers}")


@pytest.mark.parametrize("name", ["draft_model", "ngram:5"])
def test_an_argument_must_fit(rewrite, name):
    with pytest.raises(SpecEditError, match=r"needs an argument|takes no argument"):
        rewrite(name)


def test_a_model_that_is_not_there_is_said(rewrite):
    with pytest.raises(SpecEditError, match="no model /nowhere"):
        rewrite("draft_model:/nowhere")
