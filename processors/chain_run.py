"""`ChainRun`: a chain over rows of logits, token after token, without an engine and without a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from processors.base import Admission, Env
from processors.catalog import Draw
from processors.chain import Chain
from processors.explain.rows import explain_rows
from processors.explain.view import RowView
from processors.history import History
from processors.order import check_together
from processors.pipeline import Pipeline
from processors.registry import Registry
from processors.rng import signed
from processors.rows import Rows
from processors.sampler import Sampler

__all__ = ["ChainRun", "Chosen"]


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
