"""Rotary position embeddings: frequencies by kind, tables of cosines and sines, and the factors of long-
rope models (Phi-3 and its successors), chosen by the length of each lane's own text, so that logits do
not depend on chunks or on other lanes. Sources: RoFormer (arXiv 2104.09864), YaRN (arXiv 2309.00071),
LongRoPE (arXiv 2402.13753), Llama 3.1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from gencli.core.request import Feed, StepPlan, rope_factors
from gencli.models.decoder.families import RopeSpec, Unsupported
from processors.graphs import upload

if TYPE_CHECKING:
    from gencli.models.kv.lane_buffers import LaneLengths
    from gencli.models.model_runner import Lanes

T = TypeVar("T")


def frequencies(rope: RopeSpec, *, is_long: bool = False) -> tuple[Tensor, float]:
    """Return the angles per position [width / 2], and the factor of cosines and sines.

    `is_long` takes the frequencies for texts beyond the switch of a long rope.
    """
    exponents = torch.arange(0, rope.width, 2, dtype=torch.int64).float() / rope.width
    plain = 1.0 / (rope.theta**exponents)
    values = rope.values
    if rope.kind == "default":
        return plain, 1.0
    if rope.kind == "linear":
        return plain / values["factor"], 1.0
    if rope.kind == "factors":
        return plain / torch.tensor(values["factors"], dtype=torch.float32), 1.0
    if rope.kind == "llama3":
        # Low frequencies are divided by the factor, high ones are kept, and those between blended.
        factor, original = values["factor"], values["original_max_position_embeddings"]
        low, high = values["low_freq_factor"], values["high_freq_factor"]
        wavelength = 2 * math.pi / plain
        scaled = torch.where(wavelength > original / low, plain / factor, plain)
        share = (original / wavelength - low) / (high - low)
        blended = (1 - share) * scaled / factor + share * scaled
        is_between = (wavelength >= original / high) & (wavelength <= original / low)
        return torch.where(is_between, blended, scaled), 1.0
    if rope.kind == "yarn":
        return _yarn(rope)
    if rope.kind == "longrope":
        factors = torch.tensor(values["long_factor" if is_long else "short_factor"], dtype=torch.float32)
        original, scale = values["original_max_position_embeddings"], values.get("attention_factor")
        factor = values.get("factor") or rope.context / original
        if scale is None:
            scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
        return 1.0 / (factors * rope.theta**exponents), float(scale)
    raise Unsupported(f"the rotary embedding {rope.kind!r} is not one of the decoder")


def _yarn(rope: RopeSpec) -> tuple[Tensor, float]:
    values, width = rope.values, rope.width
    original = values["original_max_position_embeddings"]
    factor = values.get("factor") or rope.context / original

    def dimension(rotations: float) -> float:
        return width * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(rope.theta))

    low, high = dimension(values.get("beta_fast") or 32), dimension(values.get("beta_slow") or 1)
    if values.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    ramp = ((torch.arange(width // 2, dtype=torch.float32) - low) / max(high - low, 0.001)).clamp(0, 1)
    spread = rope.theta ** (torch.arange(0, width, 2).float() / width)
    keep = 1 - ramp
    angles = 1.0 / (factor * spread) * (1 - keep) + 1.0 / spread * keep
    scale = values.get("attention_factor")
    if scale is None:
        mscale, all_dims = values.get("mscale"), values.get("mscale_all_dim")
        scale = _magnitude(factor, mscale) / _magnitude(factor, all_dims) if mscale and all_dims else None
    return angles, float(_magnitude(factor, 1.0) if scale is None else scale)


def _magnitude(factor: float, weight: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


class RopeTable:
    """Cosines and signed sines of all positions so far, [F, P, width]; F is 2 for a long rope, else 1."""

    def __init__(self, rope: RopeSpec, dtype: torch.dtype, device: torch.device) -> None:
        versions = [frequencies(rope, is_long=is_long) for is_long in (False, *(True for _ in rope.switches))]
        self._angles = torch.stack([angles for angles, _ in versions]).to(device)
        self._scale, self._dtype = versions[0][1], dtype
        self._cos = self._sin = torch.empty(len(versions), 0, rope.width, dtype=dtype, device=device)

    def rows(self, positions: Tensor, factors: Tensor | None, end: int) -> tuple[Tensor, Tensor]:
        """Return cosines and signed sines [N, 1, width] of `positions` [N], all below `end`.

        `factors` [N] is the number of the frequencies of each position; None is 0 for all.
        """
        self.reserve(end)
        index = (0 if factors is None else factors, positions)
        return self._cos[index][:, None], self._sin[index][:, None]

    def reserve(self, end: int) -> Tensor:
        """Return the cosines, of all positions below `end` at least: another tensor after a growth."""
        if end <= self._cos.shape[1]:
            return self._cos
        length = max(end, 2 * self._cos.shape[1], 256)
        positions = torch.arange(length, device=self._angles.device, dtype=torch.float32)
        angles = positions[None, :, None] * self._angles[:, None]
        angles = torch.cat([angles, angles], -1)
        sines = angles.sin() * self._scale
        sines[..., : sines.shape[-1] // 2].neg_()  # the first half of a head takes minus the second
        self._cos = (angles.cos() * self._scale).to(self._dtype)
        self._sin = sines.to(self._dtype)
        return self._cos


def rotate(states: Tensor, cos: Tensor, sin: Tensor) -> None:
    """Rotate `states` [N, heads, D] in place: x * cos + swap(x) * sin, on the first width values of a head.

    swap exchanges the halves of those values. `cos` and `sin` [N, 1, width] are rows of a RopeTable.
    """
    part = states[..., : cos.shape[-1]]
    swapped = part.roll(part.shape[-1] // 2, -1)
    part.mul_(cos).addcmul_(swapped, sin)


def rope_switches(config: Any) -> tuple[int, ...]:
    """Return the lengths (tokens) beyond which a model of this configuration uses other rotary factors."""
    ropes = getattr(config, "rope_parameters", None) or {}
    each = [ropes] if "rope_type" in ropes else [rope for rope in ropes.values() if isinstance(rope, dict)]
    lengths = {rope["original_max_position_embeddings"] for rope in each if rope["rope_type"] == "longrope"}
    return tuple(sorted(lengths))


def use_lane_factors(model: Any) -> None:
    """Patch the model's rotary modules to use the factors given by `taking_factors`."""
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        is_long = "longrope" in (kinds.values() if isinstance(kinds, dict) else [kinds])
        if is_long and not isinstance(module.forward, _Rotary):
            module.forward = _Rotary(module.forward)


def factors_of(feed: Feed, switches: tuple[int, ...]) -> int:
    """Return the number of the rotary factors for the feed's text (0 is the shortest range)."""
    return rope_factors(max(feed.text_length, feed.start + len(feed.tokens)), switches)


@dataclass(frozen=True, slots=True)
class _PassFactors:
    """Factor numbers of a pass: those in `used`, and the one of each row or token [B, 1 or Q] if several."""

    switches: tuple[int, ...]
    used: tuple[int, ...]
    numbers: Tensor | None


_pass_factors: ContextVar[_PassFactors | None] = ContextVar("pass_factors", default=None)


@contextmanager
def setting(variable: ContextVar[T], value: T) -> Iterator[None]:
    """While active, the variable has the value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def taking_factors(
    factors: Sequence[int],
    switches: tuple[int, ...],
    *,
    length: int,
    device: torch.device,
    is_row: bool = False,
) -> AbstractContextManager[None]:
    """While active, a pass uses these factors: one per row, or with `is_row` one per token of its only row.

    `length` is that of the longest lane of the pass, by which the model itself would choose.
    """
    used = tuple(sorted(set(factors)))
    is_own = used == (rope_factors(length, switches),)
    numbers = None
    if len(used) > 1:
        numbers = upload([factors], device) if is_row else upload([factors], device).T
    return setting(_pass_factors, None if is_own else _PassFactors(switches, used, numbers))


def static_factors(numbers: Tensor, switches: tuple[int, ...]) -> AbstractContextManager[None]:
    """While active, a pass computes all factors and takes those of `numbers` [B, 1], which may change."""
    return setting(_pass_factors, _PassFactors(switches, tuple(range(len(switches) + 1)), numbers))


class _Rotary:
    """Patched forward of a rotary module: returns cosines and sines [B, Q, D] of positions [B, Q]."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        self._forward = forward

    def __call__(self, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Return the module's result with the factors of the pass, or with its own choice if none are set."""
        factors = _pass_factors.get()
        if factors is None:
            return self._forward(x, position_ids, *args, **kwargs)
        parts = [self._with(number, factors, x, position_ids, *args, **kwargs) for number in factors.used]
        tables = [_select(factors, versions) for versions in zip(*parts, strict=True)]
        return tables[0] if len(tables) == 1 else tuple(tables)

    def _with(
        self, number: int, factors: _PassFactors, x: Tensor, position_ids: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, ...]:
        """Return the result with factors `number`: an added position makes the module choose them."""
        switches = factors.switches
        held = position_ids.clamp(max=switches[number] - 1) if number < len(switches) else position_ids
        longest = held.new_full((*held.shape[:-1], 1), switches[number - 1] if number else 0)
        result = self._forward(x, torch.cat([held, longest], -1), *args, **kwargs)
        return tuple(table[..., :-1, :] for table in (result if isinstance(result, tuple) else (result,)))


def _select(factors: _PassFactors, versions: Sequence[Tensor]) -> Tensor:
    table = versions[0]
    for number, other in zip(factors.used[1:], versions[1:], strict=True):
        assert factors.numbers is not None
        table = torch.where((factors.numbers == number)[..., None], other, table)
    return table


@dataclass(slots=True)
class _LaneText:
    """Tokens of a lane, and the number of the rotary factors they were computed with."""

    tokens: list[int] = field(default_factory=list)
    factors: int = 0


class LongRopeLanes:
    """Lanes whose logits equal those of one pass over the whole text.

    If a feed's text needs other factors than its lane was computed with, the whole lane is recomputed.
    `lengths` are those of the inner lanes, one of which may be fed twice in a step.
    """

    def __init__(self, lanes: Lanes, lengths: LaneLengths, switches: tuple[int, ...]) -> None:
        self.can_rollback = lanes.can_rollback
        self._inner, self._lengths, self._switches = lanes, lengths, switches
        self._held: dict[int, _LaneText] = {}

    def forward(self, feeds: tuple[Feed, ...]) -> Tensor:
        parts = [self._parts(feed) for feed in feeds]
        logits: list[list[Tensor]] = [[] for _ in feeds]
        for number in range(max(map(len, parts))):
            fed = [(index, spans[number]) for index, spans in enumerate(parts) if number < len(spans)]
            plan = StepPlan(tuple(self._next(feeds[index], part) for index, part in fed))
            rows = torch.split(self._inner.forward(plan.feeds), [feed.num_logits for feed in plan.feeds])
            self._lengths.advance(plan)
            for (index, _), part_rows in zip(fed, rows, strict=True):
                logits[index].append(part_rows)
        return torch.cat([rows for feed_rows in logits for rows in feed_rows])

    def truncate(self, lane: int, length: int) -> None:
        self._inner.truncate(lane, length)
        self._lengths.truncate(lane, length)
        del self._held[lane].tokens[length:]

    def fork(self, source: int, target: int) -> None:
        self._inner.fork(source, target)
        self._lengths.fork(source, target)
        if source in self._held:
            held = self._held[source]
            self._held[target] = _LaneText([*held.tokens], held.factors)

    def release(self, lane: int) -> None:
        self._inner.release(lane)
        self._lengths.release(lane)
        self._held.pop(lane, None)

    def free_cache(self) -> None:
        self._inner.free_cache()

    def _parts(self, feed: Feed) -> list[tuple[int, int, int]]:
        """Return (factors, end, wanted rows) of each part; the wanted rows of a part have equal factors."""
        end = feed.start + len(feed.tokens)
        if feed.num_logits == feed.num_scored:
            return [(factors_of(feed, self._switches), end, feed.num_scored)]
        lengths = range(end - feed.num_logits + feed.num_scored + 1, end + 1)
        sides = groupby(lengths, key=lambda length: rope_factors(length, self._switches))
        parts = [(factors, side[-1], len(side)) for factors, group in sides if (side := [*group])]
        factors, first, count = parts[0]
        return [(factors, first, count + feed.num_scored), *parts[1:]]

    def _next(self, feed: Feed, part: tuple[int, int, int]) -> Feed:
        """Return the feed of one part, after emptying its lane if that was computed with other factors."""
        factors, end, num_logits = part
        held = self._held.setdefault(feed.lane, _LaneText())
        if held.factors != factors and held.tokens:
            self._inner.release(feed.lane)
            self._lengths.release(feed.lane)
        start = self._lengths[feed.lane]
        held.tokens += feed.tokens[len(held.tokens) - feed.start : end - feed.start]
        held.factors = factors
        least = self._switches[factors - 1] + 1 if factors else 0
        tokens = tuple(held.tokens[start:])
        return feed._replace(start=start, tokens=tokens, num_logits=num_logits, text_length=least)
