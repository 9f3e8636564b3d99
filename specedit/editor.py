"""`SpecEditor`: prompt, decode, extract, check."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property, partial
from threading import Event, Lock
from typing import TYPE_CHECKING, Any

from transformers import PreTrainedTokenizerBase

from specedit import models
from specedit.decoding.cost import CostCurve
from specedit.decoding.encode import Messages, encode_chat, encode_text, longest_token, make_request
from specedit.decoding.grammar import Grammar
from specedit.decoding.loop import decode
from specedit.decoding.planner import Planner
from specedit.decoding.sampling import Sampler
from specedit.decoding.statistics import Statistics
from specedit.decoding.text import TextStream
from specedit.editing.answer import closing_stop, extract
from specedit.editing.languages import language_of
from specedit.editing.prompt import EditPrompt, build_prompt
from specedit.editing.references import known
from specedit.editing.source import SourceFile
from specedit.paths import cache_folder
from specedit.proposers import DEFAULT, Proposer, create, find
from specedit.results import EditResult, Generation, Stream, Trace, judged
from specedit.targets import Target
from specedit.targets.batch import Batch, SharedCost, check_wanted
from specedit.targets.hf import HFTarget
from specedit.targets.linear import pack
from specedit.types import Sampling, SpecEditError, agreeing

if TYPE_CHECKING:
    from specedit.integrations.hosted import HostedEditor

GREEDY = Sampling()
LLAMACPP = "llamacpp:"
_UNBOUNDED = 4096  # answer tokens where neither the caller nor the model sets a limit


class SpecEditor:
    """Rewrites files and answers chats with one model. Requests of several threads are decoded together, and
    what earlier requests had scored of the same beginning is not scored again.

    Args:
        target: the model that decides every token.
        tokenizer: of that model.
        proposers: names of the proposers that guess; none decodes plainly.
        cost: what verifying costs; by default measured once, kept in the user's cache and corrected there.
        kept: bytes of key-value caches that are kept of finished requests.
        memory: bytes that those of running requests may take; by default most of what is free. A request that
            would take more waits for others.
        saving: whether every answer keeps what it taught about the cost; or else `save` does.
    """

    def __init__(
        self,
        target: Target,
        tokenizer: PreTrainedTokenizerBase,
        proposers: Sequence[str] = DEFAULT,
        cost: CostCurve | None = None,
        kept: int = 1 << 30,
        memory: int | None = None,
        saving: bool = True,
    ) -> None:
        self.target = target
        self.tokenizer = tokenizer
        self._proposers = create(proposers)
        self._cost = cost
        self._planner: Planner | None = None
        self._calibrating = Lock()
        self._saving = saving
        self._turn = 0
        self._batch: Batch | None = None
        if isinstance(target, HFTarget) and target.can_rollback:
            self._batch = Batch(target, kept, memory)
        if self._proposers and not target.can_rollback:
            warnings.warn(
                f"{target.name} keeps a state that cannot be rolled back: it is decoded plainly.",
                stacklevel=2,
            )
            self._proposers = []
        for proposer in self._proposers:
            proposer.join(target, tokenizer)

    @classmethod
    def from_pretrained(
        cls,
        model: str | None = None,
        *,
        device: str | None = None,
        dtype: str | None = None,
        proposers: Sequence[str] = DEFAULT,
        progress: Callable[[str], None] | None = None,
        **options: Any,
    ) -> SpecEditor:
        """An editor with a model of the hub, a local folder, a `.gguf` file, or the default model (None).
        Before a `.gguf` file, or alone, "llamacpp:" says that llama.cpp is to run it.

        Args:
            device: "cpu", "cuda", "cuda:1", "mps"; None or "auto" takes the best there is.
            dtype: "float32", "bfloat16", "float16"; None or "auto" takes what the device does natively.
            progress: receives short lines about what takes long.
            options: those of the class.

        Raises:
            SpecEditError: the model cannot be had or loaded, or there is no such device, dtype or proposer.
        """
        find(proposers)  # a wrong name should not wait for the model
        if model and model.startswith(LLAMACPP):
            from specedit.integrations.llamacpp.editor import named

            file = model.removeprefix(LLAMACPP)
            return cls(*named(file, device, dtype, progress), proposers, **options)
        loaded = models.load(model, device=device, dtype=dtype, progress=progress)
        pack(loaded.model)
        return cls(HFTarget(loaded.model, loaded.name), loaded.tokenizer, proposers, **options)

    @staticmethod
    def remote(base: str, model: str, **options: Any) -> HostedEditor:
        """An editor with a model that a provider of OpenAI's API runs. See `HostedEditor`."""
        from specedit.integrations.hosted import HostedEditor

        return HostedEditor(base, model, **options)

    @property
    def proposers(self) -> Sequence[Proposer]:
        """Those that guess, made for this model. They follow one answer at a time."""
        return self._proposers

    @property
    def concurrent(self) -> bool:
        """Whether several threads may have requests at a time."""
        return self._batch is not None

    @property
    def rows(self) -> int:
        """How many requests are being decoded, as far as they may be several."""
        return self._batch.rows if self._batch else 0

    @property
    def kv_bytes(self) -> int:
        """What all key-value caches take of the device's memory, as far as requests may be several."""
        return self._batch.bytes if self._batch else 0

    def calibrate(self) -> None:
        """Measure what verifying costs, unless it is known. The first speculative answer would do it too."""
        with self._calibrating:
            if self._planner is None and self._proposers:
                cost = self.cost
                if self._batch:
                    cost = SharedCost(self._batch, cost)
                self._planner = Planner(self._proposers, cost)

    @property
    def cost(self) -> CostCurve:
        """What verifying costs with this model, measured now unless it is known."""
        if self._cost is None:
            self._cost = CostCurve.cached(self.target, cache_folder() / "costs")
        return self._cost

    def save(self) -> None:
        """Keep what answers taught about the cost of verifying for the next start."""
        if self._planner:
            self._planner.cost.save()

    def forget(self) -> None:
        """Let no later answer profit from earlier ones: what was kept of their texts and contexts is gone."""
        if self._planner:
            self._planner.forget()
        if self._batch:
            self._batch.prefixes.clear()

    def generate(self, prompt: Messages | Sequence[int], **options) -> Generation:
        """The whole answer to a chat or a run of token ids. The options are those of `stream`."""
        return self.stream(prompt, **options).result

    def stream(
        self,
        prompt: Messages | Sequence[int],
        *,
        prefill: str = "",
        prediction: str | None = None,
        references: Sequence[str] = (),
        language: str = "",
        client: str = "",
        sampling: Sampling = GREEDY,
        stop: Sequence[str] = (),
        max_new_tokens: int | None = None,
        logprobs: bool = False,
        top_logprobs: int = 0,
        tools: Sequence[Mapping[str, Any]] = (),
        json_schema: Mapping[str, Any] | None = None,
        speculate: bool = True,
    ) -> Stream[Generation]:
        """Answer a chat or a run of token ids, piece by piece.

        Args:
            prompt: `{"role": ..., "content": ...}` messages, or token ids.
            prefill: what the answer to a chat is made to begin with; it is not part of the answer.
            prediction: the text that the answer is expected to be, roughly.
            references: other texts that it may repeat; without these and a prediction, the files that the
                messages show.
            language: of the prediction or the first reference, as written after a code fence.
            client: who asks. Answers come faster for what the same client was answered before.
            sampling: how tokens are drawn; greedy by default.
            stop: the answer ends before the first of these strings.
            max_new_tokens: the longest answer; by default what the context holds.
            logprobs: also say how likely the model held each token.
            top_logprobs: and how likely so many of the likeliest at each place.
            tools: that the model may call, as OpenAI's API describes them; for the model's chat template.
            json_schema: the answer is JSON that fulfils this, unless a limit cuts it.
            speculate: False decodes plainly.

        Raises:
            SpecEditError: the prompt is empty or leaves no room in the model's context, the model knows no
                tools, or the JSON schema cannot be followed.
        """
        ids = self._encode(prompt, prefill, tools)
        limit = self._limit(ids, max_new_tokens)
        messages = [message for message in prompt if not isinstance(message, int)]
        texts, language = known([prediction or "", *references], language, messages)
        if speculate:
            self.calibrate()
        stats, cancelled = Statistics(), Event()
        grammar = None
        if json_schema is not None:
            grammar = Grammar(self.tokenizer, self.target.eos_token_ids, json_schema)
        sampler = Sampler(sampling, ids, logprobs, top_logprobs, grammar)
        request = make_request(
            self.tokenizer,
            ids,
            texts,
            language,
            self.target.eos_token_ids,
            client=client,
            draw=sampler.preview,
        )
        answer = TextStream(self.tokenizer, self.target.eos_token_ids, stop, after=ids)
        trace = Trace(answer.tokens, stats.sources, stats.rejected, sampler.logprobs, sampler.top_logprobs)
        decoding = partial(
            decode,
            request=request,
            sampler=sampler,
            planner=self._planner.fork() if speculate and self._planner else None,
            max_tokens=limit,
            ends=answer.push,
            stats=stats,
        )
        self._turn += 1
        # An answer that may take the whole context rarely does: others need not wait for that.
        target = self._target(len(ids) + min(limit, _UNBOUNDED), client, cancelled, stats)
        finished = partial(Generation, prompt=ids, trace=trace, stats=stats)
        pieces = self._pieces(target, decoding, answer, finished, cancelled, self._turn)
        return Stream(stats, trace, pieces, cancelled)

    def rewrite(self, source: str | os.PathLike[str] | SourceFile, instruction: str, **options) -> EditResult:
        """The file, or text, as the instruction wants it. The options are those of `stream_rewrite`."""
        return self.stream_rewrite(source, instruction, **options).result

    def stream_rewrite(
        self,
        source: str | os.PathLike[str] | SourceFile,
        instruction: str,
        *,
        said: str | None = None,
        name: str = "",
        references: Mapping[str, str] | None = None,
        client: str = "",
        sampling: Sampling = GREEDY,
        stop: Sequence[str] = (),
        max_new_tokens: int | None = None,
        speculate: bool = True,
    ) -> Stream[EditResult]:
        """Rewrite a file or text, piece by piece. Nothing is written before `EditResult.write`.

        Args:
            source: text (str), or a file (`pathlib.Path` or `SourceFile`).
            instruction: what to change.
            said: of this, what a person said: it is searched for leave to change tabs and the like.
            name: the file name to show the model for text; it also tells the language.
            references: other texts to show the model, by name.
            client: who asks, as in `stream`.
            sampling: how tokens are drawn; greedy by default.
            stop: the answer ends before the first of these strings, incomplete, so that it can be looked at
                and not written.
            max_new_tokens: the longest answer; by default half as long again as the file, and 256 more.
            speculate: False decodes plainly.

        Raises:
            SpecEditError: there is no such file, no instruction, or too little context in the model.
            Refused: the file is not text.
        """
        source = SourceFile.of(source, name)
        shown = source.shown_name
        prompt = build_prompt(source.text, instruction, shown, references=references)
        self.check_size(prompt.messages)
        size = len(self._encode_text(source.text))
        ids = self._encode(prompt.messages, prompt.prefill)
        if self.target.max_length is not None and len(ids) + size >= self.target.max_length:
            raise SpecEditError(
                f"{source.name or 'The text'} is too long for this model: prompt and answer take about "
                f"{len(ids) + size} tokens and its context holds {self.target.max_length}; "
                "choose a model with a longer context or a shorter file."
            )
        stream = self.stream(
            ids,
            prediction=source.text,
            references=list((references or {}).values()),
            language=language_of(shown),
            client=client,
            sampling=sampling,
            stop=[closing_stop(prompt.fence), *stop],
            max_new_tokens=size + size // 2 + 256 if max_new_tokens is None else max_new_tokens,
            speculate=speculate,
        )
        asked = instruction if said is None else said
        pieces = _rewriting(stream, source, asked, prompt, self.target.max_length, self._control)
        return Stream(stream.stats, stream.trace, pieces, stream.cancelled)

    def margin(self, a: Generation, b: Generation) -> float | None:
        """How close the call was where two answers to one prompt part: the difference of the target's two
        highest logits there. None if they do not part. Near zero, a different kernel shape can decide it;
        in float32 that does not happen in practice.
        """
        same = agreeing(a.tokens, b.tokens)
        if same == len(a.tokens) == len(b.tokens):
            return None
        self._turn += 1
        self.target.reset()
        best = self.target.extend([*a.prompt, *a.tokens[:same]], last_only=True)[0].float().topk(2).values
        return float(best[0] - best[1])

    @contextmanager
    def _target(self, tokens: int, client: str, cancelled: Event, stats: Statistics) -> Iterator[Target]:
        """The target of a request whose context grows to so many tokens at most."""
        if self._batch is None:
            yield self.target
            return
        with self._batch.row(tokens, client, cancelled.is_set) as row:
            yield row
            stats.cached_tokens, stats.extra_memory = row.reused, self._batch.target.extra_bytes

    def _pieces(
        self,
        target: AbstractContextManager[Target],
        decoding: Callable[[Target], Iterator[list[int]]],
        answer: TextStream,
        finished: Callable[[str, str, str | None], Generation],
        cancelled: Event,
        turn: int,
    ) -> Generator[str, None, Generation]:
        with target as row:
            steps = decoding(row)
            while True:
                check_wanted(cancelled.is_set)
                if self._batch is None and self._turn != turn:  # its context is another request's now
                    raise SpecEditError(
                        "This editor began another request; finish one before starting the next."
                    )
                if next(steps, None) is None:
                    break
                if piece := answer.take():
                    yield piece
        if self._saving:
            self.save()
        if piece := answer.take(final=True):
            yield piece
        generation = finished(answer.text, answer.finish_reason, answer.matched_stop)
        for logprobs in (generation.trace.logprobs, generation.trace.top_logprobs):
            del logprobs[len(answer.tokens) :]  # a draft may have gone on beyond the end
        return generation

    def _limit(self, ids: Sequence[int], asked: int | None) -> int:
        """The longest answer that was asked for and that the context can hold, in tokens."""
        if not ids:
            raise SpecEditError("The prompt is empty: say something.")
        if asked is not None and asked < 1:
            raise SpecEditError("The answer needs room: let max_new_tokens be 1 or more.")
        if self.target.max_length is None:
            return asked or _UNBOUNDED
        room = self.target.max_length - len(ids)
        if room < 1:
            raise SpecEditError(
                f"The prompt has {len(ids)} tokens and the model's context holds {self.target.max_length}: "
                "shorten it or choose a model with a longer context."
            )
        return min(room, asked or room)

    @cached_property
    def _control(self) -> dict[int, str]:
        """Tokens that belong into no file, but those that end an answer."""
        return {
            token: str(added)
            for token, added in self.tokenizer.added_tokens_decoder.items()
            if added.special and token not in self.target.eos_token_ids
        }

    def _encode_text(self, text: str) -> list[int]:
        return encode_text(self.tokenizer, text)

    def _encode(
        self, prompt: Messages | Sequence[int], prefill: str, tools: Sequence[Mapping[str, Any]] = ()
    ) -> list[int]:
        ids = [token for token in prompt if isinstance(token, int)]
        if len(ids) == len(prompt):
            return ids + self._encode_text(prefill)
        messages = [message for message in prompt if not isinstance(message, int)]
        self.check_size(messages)
        return encode_chat(self.tokenizer, messages, prefill, tools)

    def check_size(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Refuse what cannot fit before it is tokenised, which would take long.

        Raises:
            SpecEditError: it has more letters than the longest tokens that the context holds.
        """
        letters = sum(len(message.get("content") or "") for message in messages)
        if self.target.max_length is None:
            return
        if letters > self.target.max_length * longest_token(self.tokenizer):
            raise SpecEditError(
                f"The prompt is too long for this model: it has {letters:,} letters, and its context holds "
                f"{self.target.max_length} tokens; shorten it or choose a model with a longer context."
            )


def _rewriting(
    stream: Stream[Generation],
    source: SourceFile,
    instruction: str,
    prompt: EditPrompt,
    context: int | None,
    control: Mapping[int, str],
) -> Generator[str, None, EditResult]:
    # The stream holds the closing fence back until it knows what follows: the last piece is ours to choose. A
    # fence that closes an empty file is no stop string.
    shown = held = ""
    for piece in stream:
        if held and not prompt.fence.startswith(shown + held):
            yield held
            shown, held = shown + held, ""
        held += piece
    generation = stream.result
    # The code ends with a newline even when the stop string, which begins with it, has cut it off.
    closing = closing_stop(prompt.fence)
    cut_off = closing if generation.matched_stop == closing else ""
    answer = extract(generation.text + cut_off, prompt.fence)
    if answer.text.startswith(shown) and len(answer.text) > len(shown):
        yield answer.text[len(shown) :]

    incomplete = None if answer.closed else _why(generation, context)
    if written := [control[token] for token in generation.tokens if token in control]:
        incomplete = f"The model wrote {written[0]}, which is no text: word the instruction differently."
    return judged(source, instruction, answer.text, incomplete, generation)


def _why(generation: Generation, context: int | None) -> str:
    """Why an answer ended before its code block did, and what to do."""
    if generation.finish_reason == "length":
        full = context is not None and len(generation.prompt) + len(generation.tokens) >= context
        advice = "choose a model with a longer context" if full else "allow more (--max-new-tokens)"
        return f"The answer was cut after {len(generation.tokens)} tokens: {advice}."
    if generation.matched_stop is not None:
        return f"The answer stopped at {generation.matched_stop!r}, incomplete: leave out that stop string."
    return "The answer ended before its code block did: word the instruction differently."
