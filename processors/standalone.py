"""Chains without an engine: `sample` for notebooks, `LogitsProcessor` for transformers' generate()."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from processors.base import Admission, Env, Vocabulary
from processors.catalog import Draw
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.registry import Registry
from processors.rng import derive, signed
from processors.rows import Rows
from processors.sampler import Sampler

__all__ = ["LogitsProcessor", "sample"]


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

    Row r draws like prompt r of a run with this seed: with derive(seed, r), at `position`, the number of
    tokens generated before (by default the length of `output`). Stages see `prompt` and `output` in every
    row. A chain with temperature 0 is greedy. Raises ChainError, ParamError or UnknownStage for a wrong
    chain, RowError for a row without a possible choice.
    """
    batch = logits if logits.dim() == 2 else logits[None]
    slots = range(len(batch))
    parsed = Chain.parse(chain, registry) if isinstance(chain, str) else chain
    is_greedy = draw == "greedy" or parsed.is_greedy
    parsed = parsed.resolved(greedy=is_greedy, registry=registry)
    device = batch.device
    history = History(device, slots=max(len(batch), 1), length=len(prompt) + len(output) + 1)
    pipeline, sampler = Pipeline(Env(batch.shape[1], device=device), registry), Sampler()
    for slot in slots:
        history.admit(slot, prompt, seed=signed(derive(seed, slot)))
        pipeline.admit(slot, parsed, Admission(tuple(prompt)))
        sampler.admit(slot, "greedy" if is_greedy else draw)
    history.append(slots, [output] * len(batch))
    for slot in slots:
        pipeline.commit(slot, output)
    rows = Rows.build(history, slots)
    if position is not None:
        rows = replace(rows, positions=torch.full_like(rows.positions, position))
    rows = pipeline.prepare(rows)
    tokens = sampler(pipeline(batch, rows), rows)
    failed = (tokens < 0).nonzero().flatten().tolist()
    if failed:
        raise pipeline.explain_failure(batch, rows, failed[0])
    return tokens if logits.dim() == 2 else tokens[0]


class LogitsProcessor:
    """A chain as a transformers logits processor: (ids [B, L], logits [B, V]) -> logits [B, V].

        model.generate(**inputs, logits_processor=[LogitsProcessor("repetition=1.2 | min_p=0.05")])

    The ids of the first call are the prompts, without leading `pad_id`. Stages that read text need
    `vocabulary`; stages about the end of text need `eos_ids`. generate() itself draws: pass do_sample=True to
    it, and leave out its temperature and top_p. Raises ChainError, ParamError or UnknownStage for a wrong
    chain.
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
        self._vocabulary, self._eos_ids, self._pad_id = vocabulary, tuple(eos_ids), pad_id
        self._registry = registry
        self._seen: list[list[int]] = []  # the ids of each row that the stages have seen
        self._num_prompt = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return processed logits [B, V] float32."""
        ids = input_ids.tolist()
        if not self._extends_last_call(ids):
            self._admit(ids, scores)
        for slot, (before, now) in enumerate(zip(self._seen, ids, strict=True)):
            self._history.append([slot], [now[len(before) :]])
            self._pipeline.commit(slot, now[len(before) :])
        self._seen = ids
        return self._pipeline(scores, self._pipeline.prepare(Rows.build(self._history, range(len(ids)))))

    def _extends_last_call(self, ids: list[list[int]]) -> bool:
        """Whether every row extends the same row of the call before."""
        return len(ids) == len(self._seen) and all(
            len(now) > len(before) and now[: len(before)] == before
            for before, now in zip(self._seen, ids, strict=True)
        )

    def _admit(self, ids: list[list[int]], scores: Tensor) -> None:
        """Admit all rows anew: a new generation, or beams in another order."""
        is_new = not self._seen or len(ids) != len(self._seen) or len(ids[0]) <= self._num_prompt
        self._num_prompt = len(ids[0]) if is_new else self._num_prompt
        env = Env(scores.shape[1], self._vocabulary, self._eos_ids, scores.device)
        self._pipeline = Pipeline(env, self._registry)
        self._history = History(scores.device, slots=len(ids), length=len(ids[0]) + 64)
        for slot, row in enumerate(ids):
            prompt = self._unpadded(row[: self._num_prompt])
            self._history.admit(slot, prompt)
            self._pipeline.admit(slot, self.chain, Admission(tuple(prompt)))
        self._seen = [row[: self._num_prompt] for row in ids]

    def _unpadded(self, prompt: list[int]) -> list[int]:
        start = next((index for index, token in enumerate(prompt) if token != self._pad_id), len(prompt))
        return prompt[start:]
