"""Chains outside of an engine: a draw for notebooks, and a logits processor for transformers' generate()."""

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
    """Token ids [R] int64 for logits [R, V], or one [] for logits [V], which stay as they are.

    Row r draws as prompt r of a run with this seed does: with derive(seed, r), at `position` (the number of
    tokens generated before; by default those of `output`). Stages see `prompt` and `output` in every row.
    A chain with temperature 0 takes the most likely id. Raises ChainError, ParamError or UnknownStage for a
    chain that is wrong, RowError for a row that cannot be decided.
    """
    rows_of = logits if logits.dim() == 2 else logits[None]
    slots = range(len(rows_of))
    made = Chain.parse(chain, registry) if isinstance(chain, str) else chain
    is_greedy = draw == "greedy" or made.is_greedy
    made = made.resolved(greedy=is_greedy, registry=registry)
    device = rows_of.device
    history = History(device, slots=max(len(rows_of), 1), length=len(prompt) + len(output) + 1)
    pipeline, sampler = Pipeline(Env(rows_of.shape[1], device=device), registry), Sampler()
    for slot in slots:
        history.admit(slot, prompt, seed=signed(derive(seed, slot)))
        pipeline.admit(slot, made, Admission(tuple(prompt)))
        sampler.admit(slot, "greedy" if is_greedy else draw)
    history.append(slots, [output] * len(rows_of))
    for slot in slots:
        pipeline.commit(slot, output)
    rows = Rows.build(history, slots)
    if position is not None:
        rows = replace(rows, positions=torch.full_like(rows.positions, position))
    rows = pipeline.prepare(rows)
    tokens = sampler(pipeline(rows_of, rows), rows)
    failed = (tokens < 0).nonzero().flatten().tolist()
    if failed:
        raise pipeline.explain_failure(rows_of, rows, failed[0])
    return tokens if logits.dim() == 2 else tokens[0]


class LogitsProcessor:
    """A chain as transformers' generate() takes it: (ids [B, L], logits [B, V]) -> logits [B, V].

        model.generate(**inputs, logits_processor=[LogitsProcessor("repetition=1.2 | min_p=0.05")])

    The ids of the first call are the prompts; `pad_id` is left out of them at their beginning. Stages that
    read text need the `vocabulary`, those that know of the end of a text `eos_ids`. generate() draws itself:
    pass do_sample=True for that, and leave its own temperature and top_p out. Raises ChainError, ParamError
    or UnknownStage for a chain that is wrong.
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
        self._held: list[list[int]] = []  # the ids of each row, as the stages know them
        self._num_prompt = 0

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Processed logits [B, V] float32."""
        ids = input_ids.tolist()
        if not self._goes_on(ids):
            self._begin(ids, scores)
        for slot, (before, now) in enumerate(zip(self._held, ids, strict=True)):
            self._history.append([slot], [now[len(before) :]])
            self._pipeline.commit(slot, now[len(before) :])
        self._held = ids
        return self._pipeline(scores, self._pipeline.prepare(Rows.build(self._history, range(len(ids)))))

    def _goes_on(self, ids: list[list[int]]) -> bool:
        """Whether these are the rows of the call before, each with more tokens."""
        return len(ids) == len(self._held) and all(
            len(now) > len(before) and now[: len(before)] == before
            for before, now in zip(self._held, ids, strict=True)
        )

    def _begin(self, ids: list[list[int]], scores: Tensor) -> None:
        """Admit the rows: those of a new generation, or beams that were exchanged."""
        is_new = not self._held or len(ids) != len(self._held) or len(ids[0]) <= self._num_prompt
        self._num_prompt = len(ids[0]) if is_new else self._num_prompt
        env = Env(scores.shape[1], self._vocabulary, self._eos_ids, scores.device)
        self._pipeline = Pipeline(env, self._registry)
        self._history = History(scores.device, slots=len(ids), length=len(ids[0]) + 64)
        for slot, row in enumerate(ids):
            prompt = self._unpadded(row[: self._num_prompt])
            self._history.admit(slot, prompt)
            self._pipeline.admit(slot, self.chain, Admission(tuple(prompt)))
        self._held = [row[: self._num_prompt] for row in ids]

    def _unpadded(self, prompt: list[int]) -> list[int]:
        start = next((place for place, token in enumerate(prompt) if token != self._pad_id), len(prompt))
        return prompt[start:]
