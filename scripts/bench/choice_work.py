"""Bytes and operations of the kernels of a choice, from their shapes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from gpu_work import GpuWork

ChoiceKind = Literal["greedy", "draw", "cut", "mass"]  # mass: top-p takes its share of the mass of all logits

# Instructions per thread for each logit.
LOGSUMEXP = 15
FACTS = 43  # facts of blocks
LIST = 70  # comparison with the candidates' bound; in parts without a candidate none
MASS = 43  # masses of all logits, beside that
PATCHED = 25  # for reading a logit with its patch, beside that
_LISTING = 12  # 44 for a warp that lists one of 1,000 candidates a row, else a few
# Instructions of a warp where a program ends a row alone.
_ROW = 1400
_CUT = {"cut": 5000, "mass": 6500}  # searches of 8 iterations each for k and p, of 12 for p among 1,000
_FEW = 700  # noise for 256 ids
_MANY = 1700  # noise in two levels
_JOIN = 100
_PATCHING, _PATCHING_WORDS = 2000, 460  # a patch with 300 tokens of history, and each 1,024 of its words
_READ_WITH_K = 0.55  # share of the logits in parts of 2,048 with one of the 50 largest blocks' logits
_LOGIT = 4  # bytes


def choice_work(
    kind: ChoiceKind, rows: int, width: int, *, is_flat: bool = False, is_patched: bool = False
) -> tuple[GpuWork, ...]:
    """Return what each kernel of a choice does for logits [R, V] float32.

    `is_flat`: the candidates of the rows are more than a list holds, so all kernels read all logits.
    `is_patched`: a mask or a penalty is on, so each logit is read with its patch, which a kernel makes.
    """
    return tuple(_kernels(kind, rows, width, is_flat, PATCHED if is_patched else 0))


def _kernels(kind: ChoiceKind, rows: int, width: int, is_flat: bool, patched: int) -> Iterator[GpuWork]:
    logits = rows * width
    if patched:
        words = -(-width // 32)
        yield GpuWork(24 * rows * words, own=1, alone=_PATCHING + _PATCHING_WORDS * -(-words // 1024))
    yield _work(logits, FACTS + patched, _ROW)
    if kind == "draw":
        yield GpuWork(0, own=1, alone=_MANY)
    elif kind != "greedy":
        share = 1.0 if kind == "mass" or is_flat else _READ_WITH_K
        each = LIST + _LISTING + (MASS if kind == "mass" else 0) + patched
        yield _work(logits * share, each, 0 if is_flat else _CUT[kind] + _FEW)
        if is_flat:
            yield _work(logits, LIST + MASS + patched, _ROW)
            # The program that ends a row sums up its blocks anew.
            yield _work(logits, LIST + patched, _CUT[kind] + _MANY + width / 256 * (70 + patched))
        else:
            yield GpuWork(0, own=1)
            yield GpuWork(0, own=1)


def together(*works: GpuWork) -> GpuWork:
    """Return the sum of the work of several kernels."""
    return GpuWork(
        sum(one.bytes for one in works),
        kernels=sum(one.kernels for one in works),
        own=sum(one.own for one in works),
        instructions=sum(one.instructions for one in works),
        alone=sum(one.alone for one in works),
    )


def logsumexp_work(rows: int, width: int) -> tuple[GpuWork, ...]:
    """Return the work of a log-sum-exp of rows in two kernels."""
    return _work(rows * width, LOGSUMEXP, 0), GpuWork(0, own=1, alone=_JOIN)


def _work(logits: float, each: float, alone: float) -> GpuWork:
    return GpuWork(_LOGIT * logits, own=1, instructions=each * logits, alone=alone)
