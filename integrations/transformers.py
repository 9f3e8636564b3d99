"""specedit inside transformers' own `generate`.

    model.generate(**inputs, custom_generate=partial(speculate, tokenizer=tokenizer, prediction=old_file))

or, where transformers' assisted decoding shall stay what verifies:

    with candidates(model, tokenizer, prediction=old_file):
        model.generate(**inputs, prompt_lookup_num_tokens=1)
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.generation.candidate_generator import CandidateGenerator
from transformers.generation.utils import GenerateDecoderOnlyOutput

from specedit.decoding.cost import CostCurve
from specedit.decoding.loop import decode
from specedit.decoding.planner import MAX_DRAFT, Planner
from specedit.decoding.sampling import Sampler
from specedit.decoding.statistics import Statistics
from specedit.integrations.prompts import request_for
from specedit.paths import cache_folder
from specedit.proposers import DEFAULT, create
from specedit.targets.hf import HFTarget
from specedit.types import Sampling

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase
    from transformers.generation.streamers import BaseStreamer

# What `generate` passes to a model and we do ourselves.
_OURS = {
    "attention_mask",
    "cache",
    "cache_position",
    "logits_to_keep",
    "past_key_values",
    "position_ids",
    "use_cache",
}
_planners: WeakKeyDictionary[PreTrainedModel, dict[tuple[str, ...], Planner]] = WeakKeyDictionary()


def speculate(
    model: PreTrainedModel,
    input_ids: Tensor,
    logits_processor: LogitsProcessorList,
    stopping_criteria: StoppingCriteriaList,
    generation_config: GenerationConfig,
    streamer: BaseStreamer | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    prediction: str = "",
    references: Sequence[str] = (),
    language: str = "",
    proposers: Sequence[str] = DEFAULT,
    statistics: list[Statistics] | None = None,
    **model_kwargs: Any,
) -> Tensor | GenerateDecoderOnlyOutput:
    """For `generate(custom_generate=…)`: writes what `generate` writes, in fewer passes.

    Greedily the tokens are the same. When sampling, the distribution is; the numbers are drawn by position of
    the answer, from a seed that comes from torch's generator, and not as `generate` draws them. Prompts of a
    batch are answered one after the other. Processors and criteria see each position once, with the tokens
    before it and without scores. Bind what else there is to say by `functools.partial`.

    Args:
        input_ids: int64 [batch, tokens].
        tokenizer: of the model; without it only tokens of the prompt are repeated.
        prediction: the text that the answers will be, roughly.
        references: other texts that they may repeat; without these and a prediction, the files that the
            prompt shows.
        language: of the prediction or the first reference, as written after a code fence.
        proposers: who guesses.
        statistics: what each answer took is appended.

    Returns:
        int64 [batch, tokens + longest answer], or an output with `sequences`.

    Raises:
        ValueError: the model or the settings need what this does not do.
    """
    _check(model, generation_config, model_kwargs)
    streamer = streamer or _streamer()
    target = HFTarget(model, static=False)  # to capture graphs for every call would take too long
    planner = _planner(model, target, tuple(proposers)) if target.can_rollback and proposers else None
    mask = model_kwargs.get("attention_mask")
    answers = []
    for number, row in enumerate(input_ids):
        shown = row if mask is None else row[mask[number].bool()]
        sampler = _Processed(shown, logits_processor, bool(generation_config.do_sample))
        request = request_for(
            shown.tolist(), tokenizer, prediction, references, language, draw=sampler.preview
        )
        stats, answer = Statistics(), list[int]()
        steps = decode(
            target,
            request,
            sampler,
            planner.fork() if planner else None,
            max_tokens=generation_config.max_length - input_ids.shape[1],
            ends=_Ends(row, generation_config.max_length, stopping_criteria),
            stats=stats,
        )
        for tokens in steps:
            answer += tokens
            if streamer is not None:
                streamer.put(torch.tensor(tokens))
        answers.append(answer)
        if statistics is not None:
            statistics.append(stats)
    if streamer is not None:
        streamer.end()
    if planner:
        planner.cost.save()
    sequences = _joined(input_ids, answers, generation_config)
    if generation_config.return_dict_in_generate:
        return GenerateDecoderOnlyOutput(sequences=sequences)
    return sequences


class Candidates(CandidateGenerator):
    """specedit's proposers for transformers' assisted decoding, which verifies one draft at a time.

    Args:
        model: that is assisted.
        tokenizer, prediction, references, language, proposers: as in `speculate`.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase | None = None,
        prediction: str = "",
        references: Sequence[str] = (),
        language: str = "",
        proposers: Sequence[str] = DEFAULT,
        longest: int | None = None,
    ) -> None:
        self._planner = _planner(model, HFTarget(model, static=False), tuple(proposers)).fork()
        self._ask = (tokenizer, prediction, references, language)
        self._vocabulary = model.config.get_text_config(decoder=True).vocab_size
        self._longest = longest
        self._length = self._scored = 0
        self._asked = 0.0

    def get_candidates(self, input_ids: Tensor, **_: Any) -> Any:
        history = input_ids[0].tolist()
        if not self._length:
            self._planner.start(request_for(history, *self._ask), self._vocabulary, branching=False)
        elif self._scored:
            self._planner.learn(history[self._length :], self._scored, perf_counter() - self._asked)
        room = MAX_DRAFT if self._longest is None else self._longest - len(history) - 1
        # The first pass scores the whole prompt; what it costs says nothing.
        draft = self._planner.propose(history, max(room, 0)).tokens if self._length else []
        self._scored = 1 + len(draft) if self._length else 0
        self._length, self._asked = len(history), perf_counter()
        return torch.cat([input_ids, input_ids.new_tensor([draft])], dim=1), None


@contextmanager
def candidates(model: PreTrainedModel, *arguments: Any, **options: Any) -> Iterator[None]:
    """Meanwhile, `generate` with `prompt_lookup_num_tokens` lets specedit look up. Takes what `Candidates`
    does."""

    def made(generation_config: GenerationConfig, **_: Any) -> Candidates:
        return Candidates(model, *arguments, **{**options, "longest": generation_config.max_length})

    vars(model)["_get_candidate_generator"] = made
    try:
        yield
    finally:
        del vars(model)["_get_candidate_generator"]


class _Processed(Sampler):
    """Draws from what transformers' processors make of the logits, position by position as they expect."""

    def __init__(self, prompt: Tensor, processors: Any, samples: bool) -> None:
        seed = int(torch.randint(2**31, ())) if samples else 0
        super().__init__(Sampling(temperature=float(samples), seed=seed), prompt.tolist())
        self._before = prompt
        self._processors = processors

    def _all_at_once(self, logits: Tensor) -> bool:
        return False

    def _drawn(self, logits: Tensor, answer: Sequence[int], draft: Sequence[int]) -> Iterator[int]:
        for row in range(len(logits)):
            before = [*answer, *draft[:row]]
            written = torch.cat([self._before, self._before.new_tensor(before)])[None]
            scores = self._processors(written, logits[row : row + 1].float())
            yield from self._picked(scores, [len(before)])


class _Ends:
    """Whether the answer ends with a token, by transformers' criteria."""

    def __init__(self, prompt: Tensor, longest: int, criteria: StoppingCriteriaList) -> None:
        self._written = torch.cat([prompt, prompt.new_zeros(longest - len(prompt))])[None]
        self._length = len(prompt)
        self._criteria = criteria

    def __call__(self, token: int) -> bool:
        self._written[0, self._length] = token
        self._length += 1
        return bool(self._criteria(self._written[:, : self._length], None).all())


def _check(model: PreTrainedModel, config: GenerationConfig, given: dict[str, Any]) -> None:
    unknown = sorted(name for name, value in given.items() if name not in _OURS and value is not None)
    for refused, advice in (
        (model.config.is_encoder_decoder, "is for decoders: use generate alone with this model"),
        (config.num_beams > 1, "keeps one beam: set num_beams=1"),
        (
            config.output_scores or config.output_logits or config.output_attentions,
            "keeps no scores: leave out output_scores, output_logits and output_attentions",
        ),
        (unknown, f"takes token ids alone: leave out {', '.join(unknown)}"),
    ):
        if refused:
            raise ValueError(f"specedit {advice}.")


def _streamer() -> BaseStreamer | None:
    """The streamer that `generate` was given. transformers 5 passes none on to a callable: it is in the frame
    that called us."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_name != "generate":
        frame = frame.f_back
    return frame.f_locals.get("streamer") if frame is not None else None


def _planner(model: PreTrainedModel, target: HFTarget, proposers: tuple[str, ...]) -> Planner:
    planners = _planners.setdefault(model, {})
    if proposers not in planners:
        planners[proposers] = Planner(create(proposers), CostCurve.cached(target, cache_folder() / "costs"))
    return planners[proposers]


def _joined(prompts: Tensor, answers: list[list[int]], config: GenerationConfig) -> Any:
    """The prompts with their answers, which are padded at the right."""
    longest = max(map(len, answers))
    # Without one there is no end-of-sequence token either, so that all are equally long.
    padding = 0 if config._pad_token_tensor is None else int(config._pad_token_tensor)
    rows = [answer + [padding] * (longest - len(answer)) for answer in answers]
    return torch.cat([prompts, prompts.new_tensor(rows)], dim=1)
