"""`Feedback`, the base of stages whose state follows the probabilities of drawn tokens (one number a
slot): `mirostat` and `adaptive_p`; and `skew`, which bends the draw.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TYPE_CHECKING

from processors.base import Admission, Env, P, Processor, grown
from processors.later import graphs, operations, torch
from processors.params import Note, Params, Phase, param, parameters
from processors.stages.shared import LOWEST
from processors.stages.truncation import best, cut, mass, rounded_up

if TYPE_CHECKING:
    from torch import Tensor

    from processors.rows import Rows


@dataclass(frozen=True, slots=True, eq=False)
class _Applied:
    """Result of an apply: processed logits [A, V], and ln of each row's total mass [A] float64."""

    logits: Tensor
    total: Tensor

    def log_probability(self, at: Tensor, tokens: Tensor) -> Tensor:
        """Return ln p [N] float64 of tokens [N] in the rows `at` [N]."""
        return self.logits[at, tokens].double() - self.total[at]


@dataclass(frozen=True, slots=True, eq=False)
class _SlotRows:
    """Rows of a slot in an apply: index of the first row, number of drafts that each saw, and the drafts."""

    applied: _Applied
    first: int
    offsets: tuple[int, ...]
    drafts: tuple[int, ...]

    def chosen(self, tokens: Sequence[int]) -> tuple[tuple[int, int], ...]:
        """Return pairs (row, token): each row whose drafts were accepted, with the token chosen in it."""
        pairs = zip(tokens, self.drafts, strict=False)
        same = next((index for index, (token, draft) in enumerate(pairs) if token != draft), len(self.drafts))
        return tuple(
            (row, tokens[offset])
            for row, offset in enumerate(self.offsets, self.first)
            if offset <= same and offset < len(tokens)
        )


class Feedback(Processor[P]):
    """Base of a stage with one float64 number a slot, updated by the probability of each committed token.

    The number stays on the device. A row that sees drafts gets the number as it would be after them. Commits
    of all slots are processed together before the next apply. A token chosen in no row of the stage leaves
    the number unchanged.
    """

    phase = Phase.GATE
    keeps_faults = True
    remembers = True

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._numbers = torch.zeros(8, dtype=torch.float64, device=env.device)
        self._in_apply: dict[int, _SlotRows] = self.by_slot()  # rows in the last apply
        # Commits that are not processed yet: slot, apply, and the pairs (row, token).
        self._committed: list[tuple[int, _Applied, tuple[tuple[int, int], ...]]] = []
        self._last = self._numbers[:0]  # numbers of the rows of the last apply

    @abstractmethod
    def first(self, params: P) -> float:
        """Return the initial number of a request."""

    @abstractmethod
    def process(self, logits: Tensor, numbers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return processed logits [A, V] as a new tensor, and ln of the mass that normalises p [A] float64.

        `logits` are not changed. `numbers` [A] float64: the number of each row.
        """

    @abstractmethod
    def follow(self, numbers: Tensor, log_probability: Tensor, slots: Tensor) -> Tensor:
        """Return the numbers [N] of slots [N] after tokens with ln p [N]; -inf for impossible tokens."""

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        self._work_off()
        numbers = self._numbers[rows.slots]
        if rows.drafts.shape[1]:
            out, total = self._in_turn(logits, numbers, rows)
        else:
            out, total = self.process(logits, numbers, rows)
        self._last = numbers
        applied = _Applied(logits, total)
        for run in _runs(rows):
            offsets = tuple(len(rows.host_drafts[row]) for row in run)
            slot_rows = _SlotRows(applied, run.start, offsets, rows.host_drafts[run[-1]])
            self._in_apply[rows.host_slots[run.start]] = slot_rows
        return out

    @abstractmethod
    def note(self, number: float) -> str:
        """Return the note of an explanation for a row with this number."""

    def notes(self, rows: Rows, tokens: Sequence[int]) -> list[str]:
        """Return the note of each row, from the numbers of the last apply with these rows."""
        return [self.note(number) for number in self._last.tolist()] if len(self._last) == len(rows) else []

    def _in_turn(self, logits: Tensor, numbers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Call `process` for the first row of each slot, then for the rows with one draft more, and so on."""
        out, total = torch.empty_like(logits), torch.empty_like(numbers)
        runs, seen = _runs(rows), rows.host_drafts
        for turn in range(max(map(len, runs))):
            index = [run[turn] for run in runs if turn < len(run)]
            at, these = graphs.upload_ints(index, logits.device), rows.select(index)
            if turn:
                drafts = graphs.upload_ints([seen[row][len(seen[row - 1])] for row in index], logits.device)
                before = _Applied(logits, total).log_probability(at - 1, drafts)
                numbers[at] = self.follow(numbers[at - 1], before, these.slots)
            out[at], total[at] = self.process(logits[at], numbers[at], these)
        return out, total

    def _work_off(self) -> None:
        groups: dict[int, list[tuple[int, tuple[tuple[int, int], ...]]]] = {}
        of_apply = {id(applied): applied for _, applied, _ in self._committed}
        for slot, applied, chosen in self._committed:
            groups.setdefault(id(applied), []).append((slot, chosen))
        self._committed.clear()
        for key, group in groups.items():
            for turn in range(max(len(chosen) for _, chosen in group)):
                cells = [(slot, *chosen[turn]) for slot, chosen in group if turn < len(chosen)]
                slots, at, tokens = (
                    graphs.upload_ints([*chain(*cells)], self._numbers.device).view(-1, 3).unbind(1)
                )
                log_probability = of_apply[key].log_probability(at, tokens)
                self._numbers[slots] = self.follow(self._numbers[slots], log_probability, slots)

    def admit(self, slot: int, params: P, request: Admission) -> None:
        self._work_off()
        super().admit(slot, params, request)
        self._numbers = grown(self._numbers, slot + 1)
        self._numbers[slot].fill_(self.first(params))  # item assignment would synchronise
        self._in_apply.pop(slot, None)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Store the tokens with the rows in which they were chosen, for the next update."""
        slot_rows = self._in_apply.pop(slot, None) if tokens else None
        if slot_rows is not None:
            self._committed.append((slot, slot_rows.applied, slot_rows.chosen(tokens)))

    def fork(self, source: int, target: int) -> None:
        """Copy the number, and the rows of the last apply."""
        self._work_off()
        super().fork(source, target)
        self._numbers = grown(self._numbers, target + 1)
        self._numbers[target] = self._numbers[source]


def _runs(rows: Rows) -> list[range]:
    """Return the contiguous rows of each slot; each row sees one draft more than the row before."""
    starts = [
        row
        for row, (slot, drafts) in enumerate(zip(rows.host_slots, rows.host_drafts, strict=True))
        if not row or rows.host_slots[row - 1] != slot or len(rows.host_drafts[row - 1]) >= len(drafts)
    ]
    return [range(start, end) for start, end in pairwise([*starts, len(rows)])]


_LN2 = math.log(2)
_NUM_RANKED = 100  # largest logits from which version 1 estimates Zipf's exponent


@parameters
class MirostatParams(Params):
    """Truncate so that the surprise of the drawn tokens stays at a target (Basu et al. 2021)."""

    version: int = param(0, "2 cuts by surprise, 1 by an estimated number of tokens, 0 is off.", ge=0, le=2)
    tau: float = param(5.0, "Surprise to keep on average, in bits.", ge=0, le=1000)
    eta: float = param(0.1, "How fast the limit follows the surprise of the last token.", ge=0, le=1000)


class Mirostat(Feedback[MirostatParams]):
    """Truncate so that the surprise of the drawn tokens stays at tau bits (Basu et al. 2021).

    The slot's number is mu: 2 tau at first, then mu - eta (surprise - tau) after each token, the surprise
    -log2 p taken after truncation. Version 2 drops tokens with a surprise above mu; version 1 keeps the
    number of tokens whose cross-entropy would be mu bits if they followed Zipf's law.
    """

    name = "mirostat"
    Params = MirostatParams
    about = Note(
        "version 2: x[i] = -inf where -log2 p[i] > mu; version 1: keep the k most likely tokens, "
        "k = ((s - 1) 2^mu / (1 - V^(1 - s)))^(1 / s), s the Zipf exponent of the 100 most likely. "
        "At first mu = 2 tau; after a token mu = mu - eta * (-log2 p'(token) - tau), p' what was drawn "
        "from",
        "Basu et al. 2021, Mirostat: A Neural Text Decoding Algorithm that Directly Controls "
        "Perplexity, arXiv 2007.14966.",
        "mirostat:version=2,tau=5",
        "llama.cpp, koboldcpp mirostat, mirostat_tau, mirostat_eta; text-generation-webui and "
        "ExLlamaV2 version 2 alone; no other truncation may stand beside it",
    )

    example_values = (
        {"version": 2, "tau": 1.5, "eta": 1.0},
        {"version": 1, "tau": 1.5, "eta": 1.0},
        {"version": 2},
        {"version": 1, "tau": 0.5, "eta": 3.0},
        {"version": 2, "tau": 0.0},
        {"version": 2, "tau": 1000.0, "eta": 1000.0},
        {"version": 1, "tau": 1000.0, "eta": 1000.0},
    )

    def first(self, params: MirostatParams) -> float:
        return 2 * params.tau

    def note(self, number: float) -> str:
        return f"mu {number:.2f} bits"

    def process(self, logits: Tensor, numbers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the truncated logits [A, V], and ln of the mass that is left [A]."""
        versions = self.columns.known("version", rows)
        is_first = self.columns.exact("version", rows)[:, None] == 1
        out, totals = logits.clone(), []
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        for part in operations.row_parts(logits):
            some, top, mu = logits[part], peak[part], numbers[part, None]
            masses = mass(some, top)
            threshold = top + operations.row_sums(masses).log() - mu * _LN2
            is_above = threshold > top  # every token has a surprise above mu: the most likely one stays
            threshold = rounded_up(torch.where(is_above, top, threshold))
            room = torch.where(is_above, 1, masses.shape[1])  # ties with the threshold that stay
            if 1 in versions:
                count = _zipf_count(best(some, _NUM_RANKED), mu, some.shape[1])
                width = some.shape[1] if some.is_cuda else int(count.max())
                kth, kth_room = cut(best(some, width), count)
                threshold = torch.where(is_first[part], kth, threshold)
                room = torch.where(is_first[part], kth_room, room)
            operations.drop_below(out[part], threshold, room)
            left = operations.row_sums(masses.masked_fill_(out[part] == -math.inf, 0))
            totals.append(top + left.log())
        return out, torch.cat(totals).squeeze(1)

    def follow(self, numbers: Tensor, log_probability: Tensor, slots: Tensor) -> Tensor:
        """Return mu [N] after tokens with these log-probabilities [N]; unchanged by an impossible token."""
        tau, eta = self.columns.at("tau", slots), self.columns.at("eta", slots)
        after = numbers - eta * (-log_probability / _LN2 - tau)
        return torch.where(log_probability == -math.inf, numbers, after)


def _zipf_count(ranked: Tensor, mu: Tensor, width: int) -> Tensor:
    """Return k [A, 1] int64 for the largest logits [A, N] of rows of `width` ids, by the paper's formula."""
    ranked = ranked.double()
    gaps = ranked[:, :-1] - ranked[:, 1:]
    steps = torch.arange(1, ranked.shape[1], dtype=torch.float64, device=ranked.device)
    steps = ((steps + 1) / steps).log()
    is_known = ranked[:, 1:] > -math.inf
    squares = operations.row_sums(is_known * steps.square())
    s = operations.row_sums(torch.where(is_known, gaps, 0.0) * steps) / squares
    excess = s - 1
    ratio = torch.where(
        excess == 0, 1 / math.log(max(width, 2)), excess / -torch.expm1(-excess * math.log(width))
    )
    size = ((mu * _LN2 + ratio.log()) / s).clamp(max=math.log(width)).exp()
    return size.nan_to_num(nan=1.0).floor().clamp(1, width).long()


_PEAK, _SHARPNESS, _WIDTH = 5.0, 10.0, 0.3  # as in llama.cpp


@parameters
class AdaptivePParams(Params):
    """Prefer tokens near a probability, so that the drawn ones have it on average."""

    target: float = param(
        0.0, "Probability that drawn tokens shall have on average; 0 or below is off.", ge=-1, le=1
    )
    decay: float = param(
        0.9, "Weight of the average so far against the last token's probability; 0 looks at the last alone.",
        ge=0, le=0.99,
    )  # fmt: skip

    def is_off(self) -> bool:
        return self.target <= 0


class AdaptiveP(Feedback[AdaptivePParams]):
    """x = 5 - 10 u^2 / (1 + u), u = |p - t| / 0.3, t = 2 target - a within [0, 1].

    The slot's number is a, the moving average of the probabilities p of drawn tokens before this stage: a =
    target at first, then a = (1 - decay) p + decay a after each token.
    """

    name = "adaptive_p"
    Params = AdaptivePParams
    about = Note(
        "x = 5 - 10 u^2 / (1 + u), u = |p - t| / 0.3, t = 2 target - a within [0, 1]; a is the moving "
        "average of p of the drawn tokens, target at first",
        "MrJackSpade 2025, adaptive-p-docs.",
        "adaptive_p=0.3",
        "llama.cpp, koboldcpp, text-generation-webui adaptive_target, adaptive_decay; ExLlamaV3; "
        "it lifts rare tokens, so truncate before it",
    )

    example_values = (
        {"target": 0.3},
        {"target": 0.5, "decay": 0.0},
        {"target": 1.0, "decay": 0.99},
        {"target": 1e-300, "decay": 0.5},
    )

    def first(self, params: AdaptivePParams) -> float:
        return params.target

    def note(self, number: float) -> str:
        return f"drawn on average {number:.3f}"

    def process(self, logits: Tensor, numbers: Tensor, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return the new logits [A, V], and ln of the total mass before the stage [A]."""
        wanted = (2 * self.columns.exact("target", rows) - numbers).clamp_(0, 1)[:, None]
        out, totals = torch.empty_like(logits), []
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        for part in operations.row_parts(logits):
            some, top = logits[part], peak[part]
            p = mass(some, top)
            total = operations.row_sums(p)
            away = p.div_(total * _WIDTH).sub_(wanted[part] / _WIDTH).abs_()
            new = (away * away).div_(away.add_(1)).mul_(-_SHARPNESS).add_(_PEAK)
            is_left = torch.gt(some, -math.inf, out=torch.empty_like(some)).sum(1, keepdim=True) < 2
            torch.where((some == -math.inf) | is_left, some, new.float(), out=out[part])
            totals.append(top + total.log())
        return out, torch.cat(totals).squeeze(1)

    def follow(self, numbers: Tensor, log_probability: Tensor, slots: Tensor) -> Tensor:
        """Return the averages [N] after tokens with these log-probabilities [N]."""
        decay = self.columns.at("decay", slots)
        return decay * numbers + (1 - decay) * log_probability.exp()


_SMALL = 1e-9  # for r below it, ln(1 - (1 - r)^g) is ln(g r)


@parameters
class SkewParams(Params):
    """Move the draw towards unlikely tokens, or likely ones."""

    s: float = param(
        0.0, "Above 0 towards unlikely tokens, below 0 towards likely ones; 0 is off.", ge=-10, le=10
    )


class Skew(Processor[SkewParams]):
    """p[i] = c[i]^g - c[i - 1]^g, g = e^s; c is the cumulative sum of p in descending order, ties by id.

    In the log domain: ln p[i] = g ln c[i] + ln(1 - (1 - p[i] / c[i])^g), so unlikely tokens stay possible.
    The total mass of the logits is unchanged.
    """

    name = "skew"
    phase = Phase.GATE
    Params = SkewParams
    keeps_faults = True
    about = Note(
        "p[i] = c[i]^g - c[i - 1]^g, g = e^s, c the cumulative p from the most likely token on",
        "turboderp 2024, ExLlamaV2, skew sampling.",
        "skew=0.5",
        "ExLlamaV2 skew: the same distribution, there as a power of the random number; Aphrodite sums "
        "in the order of ids",
    )

    example_values = tuple({"s": s} for s in (0.7, -0.7, 10.0, -10.0, 1e-12))

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Sorts all unmasked logits."""
        gain = self.columns.exact("s", rows).exp()[:, None]
        for part in operations.row_parts(logits):
            values, ids = operations.ranked(logits[part])
            logits[part].scatter_(1, ids, _skewed(values, gain[part]))
        return logits


def _skewed(values: Tensor, gain: Tensor) -> Tensor:
    """Return the new logits [A, N] float32 of sorted logits, for g [A, 1] float64."""
    x = values.double()
    peak = x[:, :1].clamp(min=LOWEST)
    below = x - peak
    sums = operations.row_cumsums(below.exp())
    total = sums[:, -1:]
    ratio = below - sums.log()  # ln(p[i] / c[i])
    chance = ratio.exp()
    bent = (-torch.expm1(gain * torch.log1p(-chance))).log()
    is_small = chance * gain.clamp(min=1) < _SMALL
    bent = torch.where(is_small, gain.log() + ratio, bent)
    new = (bent + gain * (sums / total).log() + total.log() + peak).clamp(min=LOWEST)
    return torch.where(values == -math.inf, values, new.float())
