"""Totals over many scored rows, by kind and group, with standard errors and bootstrap intervals."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gencli.scoring.totals import Totals, shown

__all__ = ["Sums"]

_INTERVAL = (2.5, 97.5)  # percentiles of the bootstrap
_INTERVALS = ("perplexity_interval", "bits_per_byte_interval")
_CELLS = 2**22  # random numbers drawn at once


@dataclass(slots=True)
class _Group:
    """The rows of one kind and group: totals, and tokens, bytes and log-probability of each row."""

    kind: str
    name: str | None
    totals: Totals = field(default_factory=Totals)
    rows: array[float] = field(default_factory=lambda: array("d"))  # three numbers a row


class Sums:
    """Accumulates records of texts and continuations by kind, and of choices by number of choices.

    `samples`: number of bootstrap samples of rows (with replacement) for a group's 95 % interval
    (percentiles). They depend on `seed` and the order of the rows only. A row takes 24 bytes of memory.
    """

    def __init__(self, *, samples: int, seed: int) -> None:
        self._samples, self._seed = samples, seed
        self._groups: dict[tuple[str, str | None], _Group] = {}
        self._num_choices = 0

    def add(self, record: Mapping[str, Any]) -> None:
        """Add the record of a row; rows with an error do not count."""
        if "error" in record:
            return
        if "choices" in record:
            self._num_choices += 1
            return
        kind, name = "continuations" if "greedy" in record else "texts", record.get("group")
        group = self._groups.setdefault((kind, name), _Group(kind, name))
        totals = Totals.of_record(record)
        group.totals = totals if not group.rows else group.totals + totals
        group.rows.extend((totals.tokens, totals.num_bytes, totals.possible))

    def records(self) -> list[dict[str, Any]]:
        """Return the totals of each group as JSON."""
        return [
            {
                "kind": group.kind,
                "group": group.name,
                "rows": len(group.rows) // 3,
                **group.totals.record(),
                **dict(zip(_INTERVALS, self._intervals(group), strict=True)),
            }
            for group in self._groups.values()
        ]

    def lines(self) -> Iterator[str]:
        """Yield a line for each group."""
        for group in self._groups.values():
            totals, (interval, _) = group.totals, self._intervals(group)
            found = f" (95 % {interval[0]:.4f} to {interval[1]:.4f})" if interval else ""
            words = f", per word {shown(totals.word_perplexity)}" if totals.words else ""
            banned = f"; {totals.banned} more tokens are banned" if totals.banned else ""
            name = "" if group.name is None else f"{group.name}: "
            kind = "" if group.kind == "texts" else f"{group.kind}: "
            yield (
                f"{name}{kind}perplexity per token {shown(totals.perplexity)} "
                f"+/- {shown(totals.perplexity_error)}{found}{words}, "
                f"per byte {shown(totals.byte_perplexity)}; "
                f"bits per byte {shown(totals.bits_per_byte)}; "
                f"{totals.tokens} tokens of {len(group.rows) // 3} rows{banned}"
            )

    def _intervals(self, group: _Group) -> tuple[list[float] | None, list[float] | None]:
        """Return the intervals of perplexity and bits per byte; None with one row or banned tokens."""
        rows = np.array(group.rows).reshape(-1, 3)
        count = len(rows)
        if count < 2 or not self._samples or group.totals.banned:
            return None, None
        random, parts = np.random.default_rng(self._seed % 2**63), []
        at_once = max(1, _CELLS // count)
        for start in range(0, self._samples, at_once):
            size = min(at_once, self._samples - start)
            parts.append(rows[random.integers(0, count, (size, count))].sum(axis=1))
        tokens, sizes, logprobs = np.concatenate(parts).T
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            return _interval(np.exp(-logprobs / tokens)), _interval(-logprobs / (sizes * math.log(2)))


def _interval(values: np.ndarray[Any, Any]) -> list[float] | None:
    low, high = (float(f"{value:.6g}") for value in np.percentile(values, _INTERVAL))
    return [low, high] if math.isfinite(low) and math.isfinite(high) else None
