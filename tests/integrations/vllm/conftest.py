from types import SimpleNamespace

import pytest


@pytest.fixture
def config(tokenizer, tmp_path):
    """config(additional_config, drafted, longest, rows): as much of vLLM's as is read."""
    tokenizer.save_pretrained(tmp_path)
    model = SimpleNamespace(
        get_vocab_size=lambda: len(tokenizer),
        skip_tokenizer_init=False,
        tokenizer=str(tmp_path),
        tokenizer_revision=None,
        trust_remote_code=False,
    )

    def make(additional, drafted, longest, rows):
        return SimpleNamespace(
            additional_config=additional,
            speculative_config=SimpleNamespace(num_speculative_tokens=drafted, use_ngram=lambda: True),
            model_config=SimpleNamespace(**vars(model), max_model_len=longest),
            scheduler_config=SimpleNamespace(max_num_seqs=rows),
            device_config=SimpleNamespace(device_type="cuda"),
        )

    return make
