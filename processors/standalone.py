"""Chains without an engine and without a model: `sample` for notebooks, `LogitsProcessor` for
transformers' generate(), and `ChainRun`, a chain over rows of logits, token after token.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import torch
from torch import Tensor

from processors.base import Admission, Env, Vocabulary
from processors.catalog import Draw
from processors.chain import Chain, check_together
from processors.chooser import Chooser
from processors.errors import ChainError, ParamError, nearest
from processors.explain_rows import explain_rows
from processors.history import History
from processors.pipeline import Pipeline
from processors.registry import Registry
from processors.rng import derive, signed
from processors.row_view import RowView
from processors.rows import Rows
from processors.sampler import Sampler
from processors.stages.shared import checked

_SEEDS, _POSITIONS = 1 << 64, 1 << 62
_OF_END = ("min_tokens", "ignore_eos", "eos_above", "length_decay", "length_boost")


def _checked(logits: Any, *dims: int) -> Tensor:
    """Return logits without their graph. Raises ParamError for what is no tensor of rows of logits."""
    if not isinstance(logits, Tensor):
        raise ParamError(
            f"The logits are a {type(logits).__name__}, not a tensor. torch.as_tensor makes one."
        )
    shape = " or ".join({1: "[V]", 2: "[R, V]"}[dim] for dim in dims)
    if logits.dim() not in dims or not logits.shape[-1]:
        raise ParamError(f"The logits have the shape {[*logits.shape]}, not {shape} with V above 0.")
    if logits.is_complex() or logits.dtype == torch.bool:
        raise ParamError(f"The logits are {logits.dtype}, not real numbers.")
    return logits.detach()


def _check_range(name: str, value: int, end: int) -> None:
    if not 0 <= value < end:
        raise ParamError(
            f"{name} is {value}, but has to be at least 0 and less than 2**{end.bit_length() - 1}."
        )


def _refuse_stages_without_end(chain: Chain, why: str) -> None:
    if name := next((name for name, _ in chain.active().stages if name in _OF_END), None):
        raise ChainError(f"The stage {name} has no effect: {why}. Leave it out.")


def sample(
    logits: Tensor,
    chain: str | Chain = "",
    *,
    seed: int = 0,
    position: int | None = None,
    draw: Draw = "gumbel",
    prompt: Sequence[int] = (),
    output: Sequence[int] = (),
    registry: Registry | None = None,
) -> Tensor:
    """Return token ids [R] int64 for logits [R, V], or one id [] for logits [V]. The logits are not changed.

    Row r draws as prompt r of a run with this seed: with the seed derive(seed, r), at `position` (number of
    tokens generated before; by default the length of `output`). Stages see `prompt` and `output` in every
    row, and conditions count `output`; mirostat and adaptive_p, whose state follows the probabilities of
    drawn tokens, are in their initial state. A chain with temperature 0 is greedy. Raises ChainError,
    ParamError or UnknownStage for a wrong chain, ParamError for a wrong argument, TokenError for an id that
    is none of 0 to V - 1, RowError for a row without an allowed token.
    """
    batch = _checked(logits, 1, 2)
    if batch.dim() == 1:
        batch = batch[None]
    parsed = Chain.parse(chain, registry) if isinstance(chain, str) else chain
    _refuse_stages_without_end(parsed, "sample() knows no ids that end a text")
    if draw not in get_args(Draw):
        raise ParamError(f"draw is {draw!r}. {nearest(str(draw), get_args(Draw))}")
    _check_range("seed", seed, _SEEDS)
    if position is not None:
        _check_range("position", position, _POSITIONS)
    env = Env(batch.shape[1], device=batch.device)
    checked(prompt, env, "prompt")
    checked(output, env, "output")
    run = ChainRun(
        parsed,
        env,
        seeds=[derive(seed, row) for row in range(len(batch))],
        draw=draw,
        request=Admission(tuple(prompt)),
        registry=registry,
    )
    run.commit(output)
    rows = run.rows()
    if position is not None:
        rows = replace(rows, positions=torch.full_like(rows.positions, position))
    tokens = Chooser(run.pipeline, run.sampler)(batch, rows)
    failed = (tokens < 0).nonzero().flatten().tolist()
    if failed:
        raise run.pipeline.explain_failure(batch, rows, failed[0])
    return tokens if logits.dim() == 2 else tokens[0]


class LogitsProcessor:
    """A chain as a transformers logits processor: (ids [B, L], logits [B, V]) -> logits [B, V].

        model.generate(**inputs, logits_processor=[LogitsProcessor("repetition=1.2 | min_p=0.05")])

    The ids of the first call are the prompts, without leading `pad_id`; ids with other prompts begin a new
    generation. Rows may be reordered or truncated between calls; truncation resets mirostat and adaptive_p.
    Stages that read text need `vocabulary`; stages about the end of text need `eos_ids`. generate() itself
    samples: pass do_sample=True, and leave its temperature and top_p unset. Raises ChainError, ParamError or
    UnknownStage for a wrong chain; a call raises ParamError for logits of another shape or type, RowError for
    a row without an allowed token or with NaN.
    """

    def __init__(
        self,
        chain: str | Chain,
        *,
        vocabulary: Vocabulary | None = None,
        eos_ids: Sequence[int] = (),
        pad_id: int | None = None,
        registry: Registry | None = None,
    ) -> None:
        self.chain = (Chain.parse(chain, registry) if isinstance(chain, str) else chain).active()
        check_together(self.chain, registry)
        if not eos_ids:
            _refuse_stages_without_end(self.chain, "eos_ids is empty")
        self._vocabulary, self._eos_ids, self._pad_id = vocabulary, tuple(eos_ids), pad_id
        self._registry = registry
        self._seen = torch.empty(0, 0, dtype=torch.int64)  # ids [B, L] of the call before
        self._slots: list[int] = []  # slot of each row
        self._num_prompt = 0

    def __repr__(self) -> str:
        parts = [repr(self.chain).removeprefix("Chain(").removesuffix(")")]
        parts += [f"eos_ids={list(self._eos_ids)}"] if self._eos_ids else []
        parts += [] if self._pad_id is None else [f"pad_id={self._pad_id}"]
        parts += [f"vocabulary of {self._vocabulary.vocab_size}"] if self._vocabulary is not None else []
        return f"LogitsProcessor({', '.join(parts)})"

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return processed logits [B, V] float32. The stages are advanced by the new ids only."""
        scores = _checked(scores, 2)
        parents = self._parents(input_ids, self._seen.shape[1])
        if parents is None or input_ids.shape[1] == self._seen.shape[1]:
            self._admit(input_ids, scores)
        elif parents != list(range(len(self._slots))):
            self._fork(parents)
        new = input_ids[:, self._seen.shape[1] :].tolist()
        self._history.append(self._slots, new)
        for slot, tokens in zip(self._slots, new, strict=True):
            self._pipeline.commit(slot, tokens)
        self._seen = input_ids.clone()  # beam search changes its tensor in place
        rows = self._pipeline.prepare(Rows.build(self._history, self._slots))
        processed = self._pipeline(scores, rows)
        peaks = processed.amax(dim=1)  # NaN if one is NaN
        failed = (~peaks.isfinite()).nonzero().flatten().tolist()
        if failed:
            raise self._pipeline.explain_failure(scores, rows, failed[0])
        return processed

    def _parents(self, ids: Tensor, length: int) -> list[int] | None:
        """Return for each row an index of a row of the call before with its prefix; None if one has none."""
        if ids.shape[1] < length or not len(self._seen):
            return None
        now, before = ids[:, :length], self._seen[:, :length]
        if torch.equal(now, before):
            return list(range(len(now)))
        is_equal = (now[:, None] == before).all(dim=-1)  # [B, B of the call before] bool
        return is_equal.int().argmax(dim=1).tolist() if bool(is_equal.any(dim=1).all()) else None

    def _fork(self, parents: list[int]) -> None:
        """Give each row a slot with a copy of its parent's state."""
        is_used = set(self._slots)
        slots = [slot for slot in range(len(is_used) + len(parents)) if slot not in is_used][: len(parents)]
        for slot, parent in zip(slots, parents, strict=True):
            self._history.fork(self._slots[parent], slot, seed=0)
            self._pipeline.fork(self._slots[parent], slot)
        for slot in self._slots:
            self._pipeline.release(slot)
            self._history.release(slot)
        self._slots = slots

    def _admit(self, ids: Tensor, scores: Tensor) -> None:
        """Admit all rows anew; the prompts stay if the rows were only truncated or changed after them."""
        is_known = ids.shape[1] > self._num_prompt and self._parents(ids, self._num_prompt) is not None
        self._num_prompt = self._num_prompt if is_known else ids.shape[1]
        self._seen, self._slots = ids[:, : self._num_prompt], list(range(len(ids)))
        env = Env(scores.shape[1], self._vocabulary, self._eos_ids, scores.device)
        self._pipeline = Pipeline(env, self._registry)
        self._history = History(scores.device, slots=len(ids), length=ids.shape[1] + 64)
        for slot, row in enumerate(self._seen.tolist()):
            start = next((index for index, token in enumerate(row) if token != self._pad_id), len(row))
            prompt = row[start:]
            self._history.admit(slot, prompt)
            self._pipeline.admit(slot, self.chain, Admission(tuple(prompt)))


_NOTHING = Admission()


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Result of a chain for R rows: tokens [R] int64, and the processed logits [R, V] float32.

    The token of a row without a possible choice is negative.
    """

    tokens: Tensor
    logits: Tensor


class ChainRun:
    """R texts with the same prompt and chain; text r draws with seeds[r].

    Row r is the next token of text r. `request` has the prompt, the stop ids and `max_tokens` for the stages.
    A chain with temperature 0 is greedy. Ids beyond the tokenizer's vocabulary are masked. A ban with
    `rewind` masks instead of going back. Raises ChainError, ParamError or UnknownStage for a wrong chain.
    """

    def __init__(
        self,
        chain: Chain,
        env: Env,
        *,
        seeds: Sequence[int],
        draw: Draw = "gumbel",
        request: Admission = _NOTHING,
        registry: Registry | None = None,
    ) -> None:
        chain, self.draw = chain.resolved(draw, registry)
        check_together(chain, registry)
        if env.vocabulary is not None and env.vocabulary.vocab_size < env.vocab_size:
            chain = chain.with_stage("tail", registry, size=env.vocabulary.vocab_size)
        self.chain = chain
        self.history = History(env.device, slots=max(len(seeds), 1), length=len(request.prompt) + 64)
        self.pipeline, self.sampler = Pipeline(env, registry), Sampler()
        self._slots = range(len(seeds))
        for slot, seed in enumerate(seeds):
            self.history.admit(slot, request.prompt, seed=signed(seed))
            self.pipeline.admit(slot, chain, request)
            self.sampler.admit(slot, self.draw)

    def rows(self) -> Rows:
        """Return the rows of the next tokens, for which the stages have prepared."""
        return self.pipeline.prepare(Rows.build(self.history, self._slots))

    def choose(self, logits: Tensor, rows: Rows | None = None) -> Chosen:
        """Run the chain over the logits [R, V] of the next tokens, and draw. The logits are not changed."""
        rows = self.rows() if rows is None else rows
        processed = self.pipeline(logits, rows)
        return Chosen(self.sampler(processed, rows), processed)

    def explain(self, logits: Tensor, tokens: Tensor, *, count: int = 5) -> list[RowView]:
        """Explain the tokens [R] as choices of the next position, whatever the chain would choose."""
        draws = [self.draw] * len(self._slots)
        return explain_rows(self.pipeline, self.sampler, logits, self.rows(), tokens, draws, count=count)

    def commit(self, tokens: Sequence[int]) -> None:
        """Append these tokens to the output of every text."""
        self.history.append(self._slots, [tokens] * len(self._slots))
        for slot in self._slots:
            self.pipeline.commit(slot, tokens)
