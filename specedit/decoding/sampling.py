"""Drawing the target's tokens: one uniform number per position of the answer, one rule for every request.

The token at answer position t is the inverse-CDF draw of the target's processed distribution at t with the
number u(seed, t); greedy is the argmax. A drafted token is accepted iff it equals that draw, so the text does
not depend on what was drafted, and its distribution is the target's by construction.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from specedit.decoding.grammar import Grammar
from specedit.types import Sampling, SpecEditError, Tree, depths

# Rows are processed this many at a time where that is dear, as sorting a vocabulary for top-p is on a CPU, or
# depends on the tokens before: those after the first wrong token of a draft are never needed.
_CHUNK = 16


class Uniforms:
    """u(seed, t) for t = 0, 1, 2, …: numpy's Philox stream (Salmon et al. 2011), grown as it is read."""

    def __init__(self, seed: int) -> None:
        self._stream = np.random.Generator(np.random.Philox(seed))
        self._numbers = np.empty(0)

    def __call__(self, positions: Sequence[int]) -> np.ndarray:
        """float64 [len(positions)] in [0, 1)."""
        while len(self._numbers) <= max(positions):
            self._numbers = np.concatenate([self._numbers, self._stream.random(1024)])
        return self._numbers[list(positions)]


class Sampler:
    """Draws what the target says at each position, with everything that `Sampling` asks for.

    Args:
        sampling: the request's settings.
        prompt: the prompt's token ids; only the repetition penalty looks at them.
        keep_logprobs: fill `logprobs`.
        top: how many of `top_logprobs` to keep.
        grammar: says what may come; None allows everything.

    Attributes:
        logprobs: natural logarithm of the probability that the model itself, before temperature and
            penalties, gave each token drawn so far; empty unless they are kept.
        top_logprobs: the likeliest tokens at each of these places, with theirs.
    """

    def __init__(
        self,
        sampling: Sampling,
        prompt: Sequence[int],
        keep_logprobs: bool = False,
        top: int = 0,
        grammar: Grammar | None = None,
    ) -> None:
        self.sampling = sampling
        self.logprobs: list[float] = []
        self.top_logprobs: list[list[tuple[int, float]]] = []
        self._keep_logprobs = keep_logprobs
        self._top = top
        self._grammar = grammar
        self._prompt = list(prompt)
        self._uniforms = Uniforms(sampling.seed)
        self._warpers = LogitsProcessorList()
        if sampling.temperature > 0:
            self._warpers.append(TemperatureLogitsWarper(float(sampling.temperature)))
            if sampling.top_k:
                self._warpers.append(TopKLogitsWarper(sampling.top_k))
            if sampling.top_p < 1:
                self._warpers.append(TopPLogitsWarper(sampling.top_p))
            if sampling.min_p:
                self._warpers.append(MinPLogitsWarper(sampling.min_p))
        self._penalises = (
            sampling.repetition_penalty != 1
            or sampling.presence_penalty != 0
            or sampling.frequency_penalty != 0
        )

    def _all_at_once(self, logits: Tensor) -> bool:
        """Whether all rows are drawn in one go, with a single transfer from the device."""
        looks_back = self._penalises or self._grammar is not None
        return not looks_back and (self.sampling.temperature == 0 or logits.device.type != "cpu")

    def draw(self, logits: Tensor, answer: Sequence[int], tree: Tree) -> tuple[list[int], list[int]]:
        """The target's tokens after `answer`: the first, then one more after each that was drafted.

        Args:
            logits: float [1 + len(tree.tokens), vocab], row i after position i of the tree.
            answer: token ids of the answer so far.
            tree: what was guessed.

        Returns:
            The tokens, and for each the position that it was drawn after: 0, then those of the accepted ones.

        Raises:
            SpecEditError: the logits of a drawn token overflow, or `logit_bias` names no token.
        """
        picked: list[int] | None = None
        if self._all_at_once(logits):
            places = [len(answer) + depth for depth in depths(tree.parents)]
            picked = self._picked(self._biased(logits), places)
        drawn, path = list[int](), list[int]()
        position: int | None = 0
        while position is not None:
            end = tree.stretch(position)
            draft = tree.tokens[position : end - 1]
            if picked is None:
                tokens = _followed(self._drawn(logits[position:end], [*answer, *drawn], draft), draft)
            else:
                tokens = _followed(picked[position:end], draft)
            drawn += tokens
            path += range(position, position + len(tokens))
            position = tree.child(path[-1], drawn[-1])  # another branch may have it
        if self._keep_logprobs or self._top:
            rows = logits[path].float().log_softmax(-1)
            self.logprobs += rows.gather(1, _ids(drawn, rows).unsqueeze(1)).squeeze(1).tolist()
            best = rows.topk(min(self._top, rows.shape[1]))
            for ids, values in zip(best.indices.tolist(), best.values.tolist(), strict=True):
                self.top_logprobs.append(list(zip(ids, values, strict=True)))
        return drawn, path

    def preview(self, logits: Tensor, answer: Sequence[int]) -> int:
        """The token that these logits, float [1, vocab], would have drawn after `answer`: for drafts that are
        made by the same rule. Negative where the logits overflow."""
        return next(self._drawn(logits, answer, []))

    def _drawn(self, logits: Tensor, answer: Sequence[int], draft: Sequence[int]) -> Iterator[int]:
        """What float [1 + len(draft), vocab] logits draw after `answer` and each token of the draft."""
        for start in range(0, len(logits), _CHUNK):
            scores = logits[start : start + _CHUNK]
            before, after = [*answer, *draft[:start]], draft[start:]
            if self._penalises:
                scores = self._penalised(scores.float(), before, after)
            scores = self._biased(scores)
            if self._grammar:
                allowed = self._grammar.allowed(before, after, scores.shape)
                scores = scores.masked_fill(~allowed.to(scores.device), float("-inf"))
            yield from self._picked(scores, range(len(before), len(before) + len(scores)))

    def _biased(self, scores: Tensor) -> Tensor:
        if not self.sampling.logit_bias:
            return scores
        if not all(0 <= token < scores.shape[1] for token in self.sampling.logit_bias):
            raise SpecEditError(f"logit_bias takes token ids from 0 to {scores.shape[1] - 1}.")
        ids = _ids(self.sampling.logit_bias, scores)
        bias = torch.tensor([*self.sampling.logit_bias.values()], dtype=torch.float, device=scores.device)
        return scores.float().index_add(1, ids, bias.expand(len(scores), -1))

    def _picked(self, scores: Tensor, places: Sequence[int]) -> list[int]:
        """A token of each row of float [rows, vocab], which decide about these positions of the answer: -1
        where they overflow. Whether that matters is not known yet: the row may follow a wrong guess.
        """
        if self.sampling.temperature == 0:
            best = scores.max(-1)
            return best.indices.where(best.values.isfinite(), -1).tolist()
        probabilities = self._warpers(torch.LongTensor(), scores.float()).softmax(-1)
        if probabilities.device.type == "mps":  # it has no float64
            probabilities = probabilities.cpu()
        # float64: the last of 50,000 sums must not drift, and the draw must not hang on the row's neighbours.
        cdf = probabilities.double().cumsum(-1)
        u = torch.from_numpy(self._uniforms(places)).to(cdf.device)
        drawn = torch.searchsorted(cdf, (u * cdf[:, -1]).unsqueeze(1), right=True).squeeze(1)
        return drawn.where(cdf[:, -1].isfinite(), -1).tolist()

    def _penalised(self, scores: Tensor, answer: Sequence[int], draft: Sequence[int]) -> Tensor:
        """Each row sees the drafted tokens before it, and none after: float [rows, vocab]."""
        counts = torch.zeros_like(scores)
        counts[:] = torch.bincount(_ids(answer, scores), minlength=scores.shape[1])
        for row, token in enumerate(draft[: len(scores) - 1], start=1):
            counts[row:, token] += 1
        if self.sampling.repetition_penalty != 1:
            seen = counts > 0
            seen[:, _ids(self._prompt, scores)] = True
            penalty = self.sampling.repetition_penalty
            scores = torch.where(seen, torch.where(scores < 0, scores * penalty, scores / penalty), scores)
        return (
            scores - self.sampling.frequency_penalty * counts - self.sampling.presence_penalty * (counts > 0)
        )


def _ids(tokens: Iterable[int], like: Tensor) -> Tensor:
    return torch.tensor(list(tokens), dtype=torch.long, device=like.device)


def _followed(tokens: Iterable[int], draft: Sequence[int]) -> list[int]:
    """The tokens up to the first that differs from the draft, or one more when all of it agrees.

    Raises:
        SpecEditError: one of them is negative.
    """
    followed = list[int]()
    for token in tokens:
        if token < 0:
            raise SpecEditError("The model's logits overflow: load it with --dtype bfloat16 or float32.")
        followed.append(token)
        if len(followed) > len(draft) or token != draft[len(followed) - 1]:
            break
    return followed
