"""Kernels of the chain and the draw on a GPU: what they read, and what they take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from choice_work import ChoiceKind, choice_work, together
from gpu_parts import Line, cost_of
from gpu_work import GpuWork
from predictions import GpuCost
from sampler import made_logits
from stopwatch import Stopwatch
from torch import Tensor

from gencli.models.gpus import Gpu
from processors.base import Admission, Env
from processors.chain import Chain
from processors.chooser import Chooser
from processors.history import History
from processors.kernels.operations import apply_bitmask, token_probability
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.sampler import Sampler

WIDTHS = (32_000, 128_256, 151_936)
_DRAFTS, _REQUESTS = 4, 64  # of the step of rejection
# Chains with their draw; the kind of their kernels, and whether they read patches of the logits.
CHAINS: dict[str, tuple[str, ChoiceKind, bool]] = {
    "greedy": ("temperature=0", "greedy", False),
    "draw": ("temperature=0.8", "draw", False),
    "top-p": ("temperature=0.8 | top_p=0.95", "mass", False),
    "k, p, min-p": ("temperature=0.8 | min_p=0.05 | top_k=50 | top_p=0.95", "cut", False),
    "six stages": (
        "repetition=1.1 | frequency=0.5 | temperature=0.8 | min_p=0.05 | top_k=50 | top_p=0.95",
        "cut",
        True,
    ),
}
_PROMPT = 300  # tokens seen by penalties
_Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class _Case:
    """A kernel: its call with logits [R, V], and the bytes read and written for each logit."""

    name: str
    make: Callable[[Tensor], _Call]
    bytes_of: float


def _masking(logits: Tensor) -> _Call:
    masks = torch.full(
        (len(logits), -(-logits.shape[1] // 32)), 0x55555555, dtype=torch.int32, device=logits.device
    )
    return lambda: apply_bitmask(logits, masks)


def _probability(logits: Tensor) -> _Call:
    ids = torch.arange(len(logits), device=logits.device)
    return lambda: token_probability(logits, ids)


_KERNELS = (
    _Case("logsumexp (torch)", lambda logits: lambda: logits.logsumexp(-1), 4),
    _Case("apply_bitmask", _masking, 4 + 1 / 8),
    _Case("token_probability", _probability, 4),
)


def measure_kernels(
    gpu: Gpu | None,
    read: float,
    watch: Stopwatch,
    device: torch.device,
    widths: Sequence[int],
    counts: Sequence[int],
) -> Iterator[GpuCost]:
    """Yield the cost of each kernel by width and rows. `read`: the measured bandwidth, bytes/s."""
    for logits, one_pass in _steps(watch, device, widths, counts):
        for case in _KERNELS:
            work = GpuWork(case.bytes_of * logits.numel(), own=1)
            us = watch.us(case.make(logits.clone()))
            yield _cost("kernel", case.name, logits, work, us, gpu, read, one_pass)


def measure_chains(
    gpu: Gpu | None,
    read: float,
    watch: Stopwatch,
    device: torch.device,
    widths: Sequence[int],
    counts: Sequence[int],
) -> Iterator[GpuCost]:
    """Yield the cost of each chain with its draw, as `measure_kernels`."""
    for logits, one_pass in _steps(watch, device, widths, counts):
        for name, (chain, kind, is_patched) in CHAINS.items():
            rows, width = logits.shape
            work = together(*choice_work(kind, rows, width, is_patched=is_patched))
            us = watch.us(_chain(Chain.parse(chain), logits))
            yield _cost("chain", name, logits, work, us, gpu, read, one_pass)


def _steps(
    watch: Stopwatch, device: torch.device, widths: Sequence[int], counts: Sequence[int]
) -> Iterator[tuple[Tensor, float]]:
    """Yield logits [R, V] by width and rows, with the microseconds of their logsumexp by PyTorch."""
    for width in widths:
        for rows in counts:
            logits = made_logits("peaked", rows, width).to(device)
            yield logits, watch.us(partial(logits.logsumexp, -1))


def measure_rejection(
    gpu: Gpu | None,
    read: float,
    watch: Stopwatch,
    device: torch.device,
    width: int,
    requests: int = _REQUESTS,
) -> GpuCost:
    """Return the cost of verifying drafts by rejection, without the draw of the token after them."""
    rows = requests * (_DRAFTS + 1)
    logits = made_logits("peaked", rows, width).to(device)
    # The drafts come from nearly the target's distribution, so most are accepted; no more is read than
    # counted here.
    work = GpuWork(4.0 * width * requests * (_DRAFTS + 2), own=1)
    call = _rejection(logits, requests)
    one_pass = watch.us(partial(logits.logsumexp, -1))
    return _cost("rejection", f"{_DRAFTS} drafts", logits, work, watch.us(call), gpu, read, one_pass)


def _cost(
    part: str,
    what: str,
    logits: Tensor,
    work: GpuWork,
    us: float,
    gpu: Gpu | None,
    read: float,
    one_pass: float,
) -> GpuCost:
    rows, width = logits.shape
    line = Line(part, what, rows, width, work, work.bytes)
    return replace(cost_of(line, gpu, us=us, read=read), passes=us / one_pass)


def _chain(chain: Chain, logits: Tensor) -> _Call:
    """Return chain and draw as the engine runs them, with rows built before the forward pass."""
    count, width = logits.shape
    pipeline, sampler = Pipeline(Env(width, device=logits.device)), Sampler()
    history = History(slots=count, device=logits.device)
    stages, draw = chain.resolved()
    for slot in range(count):
        prompt = tuple((7919 * (slot + place)) % width for place in range(_PROMPT))
        history.admit(slot, prompt, seed=slot)
        pipeline.admit(slot, stages, Admission(prompt))
        sampler.admit(slot, draw)
    step = pipeline.prepare(Rows.build(history, range(count)))
    chooser = Chooser(pipeline, sampler)
    return lambda: chooser(logits, step)


def _rejection(logits: Tensor, requests: int) -> _Call:
    """Return the verification of drafts drawn from nearly the target's distribution."""
    count = _DRAFTS + 1
    ids = torch.arange(len(logits), device=logits.device)
    starts = ids[::count].contiguous()
    is_draft = ids % count < _DRAFTS
    source = logits[ids[is_draft]] * 0.98
    tokens = source.argmax(-1)
    given = (
        starts,
        torch.full_like(starts, _DRAFTS),
        tokens.view(requests, _DRAFTS),
        torch.where(is_draft, ids - ids // count, -1),  # the row of the proposal
        source,
        token_probability(source, tokens),
    )
    return lambda: torch.ops.gencli.rejection(logits, ids, ids, *given)
