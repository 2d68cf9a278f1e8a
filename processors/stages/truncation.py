"""`top_k`, `top_p` and `min_p`, which keep the most likely tokens; and `xtc`, which excludes the top choices
with some probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from processors.base import Admission, Columns, P, Processor
from processors.later import operations, rng, torch
from processors.params import MOST, Note, Params, Phase, param, parameters
from processors.stages.shared import LOWEST, IdStage, exempt_ids

if TYPE_CHECKING:
    from torch import Tensor

    from processors.rows import Rows

_LOG2_E = math.log2(math.e)


@parameters
class TopKParams(Params):
    """Keep the k most likely tokens."""

    k: int = param(0, "Keep the k most likely tokens; 0 or -1 keeps all.", ge=-1, le=MOST)
    ties: Literal["cut", "keep"] = param(
        "cut", "Ties with the k-th: cut keeps the lowest ids, keep keeps all."
    )
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)

    def is_off(self) -> bool:
        return self.k <= 0


class Truncation(Processor[P]):
    """Base of stages that mask unlikely tokens; NaN and +inf stay."""

    phase = Phase.TRUNCATE
    keeps_faults = True


class TopK(Truncation[TopKParams]):
    """Keep exactly the k most likely tokens, ties by lowest id; `ties: keep` keeps all ties."""

    name = "top_k"
    Params = TopKParams
    about = Note(
        "x[i] = -inf where x[i] is not among the k largest",
        "Fan, Lewis and Dauphin 2018, Hierarchical Neural Story Generation, arXiv 1805.04833.",
        "top_k:k=40,ties=keep",
        "everyone; ties stay in transformers and are cut in llama.cpp; in vLLM the back end decides",
    )

    example_values = (*({"k": k} for k in (1, 5, 40, 10_000)), {"k": 5, "ties": "keep"}, {"k": 2, "keep": 7})

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Sorts the largest k of the batch."""
        largest = max(self.columns.known("k", rows) | self.columns.known("keep", rows))
        ranked = best(logits, largest)
        count = torch.maximum(self.columns.gather("k", rows), self.columns.gather("keep", rows))[:, None]
        threshold, room = cut(ranked, count)
        keep_ties = self.columns.gather("ties", rows)[:, None] == 1  # cut 0, keep 1
        return operations.drop_below(logits, threshold, torch.where(keep_ties, logits.shape[1], room))

    def idle(self, rows: Rows) -> list[str]:
        return [f"{count} tokens or fewer are left" for count in self.columns.gather("k", rows).tolist()]


@parameters
class TopPParams(Params):
    """Keep the nucleus: the most likely tokens up to a mass of p (Holtzman et al. 2019)."""

    p: float = param(1.0, "Keep the most likely tokens whose mass reaches p; 1 keeps all.", ge=0, le=1)
    boundary: Literal["inclusive", "exclusive"] = param(
        "inclusive", "Whether the token that crosses p stays (inclusive) or goes (exclusive)."
    )
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


class TopP(Truncation[TopPParams]):
    """Keep the nucleus: the most likely tokens until their probabilities sum to p (Holtzman et al. 2019).

    A token is kept if the mass before it is below p, so the one that crosses p is kept. With `boundary:
    exclusive` it is kept if the mass including it is at most p.
    """

    name = "top_p"
    Params = TopPParams
    about = Note(
        "keep the most likely tokens, in order, until their p sums up to p",
        "Holtzman et al. 2019, The Curious Case of Neural Text Degeneration, arXiv 1904.09751.",
        "top_p=0.9",
        "everyone; the token that crosses p stays, but not in ExLlamaV2",
    )

    example_values = (
        *({"p": p} for p in (0.0, 0.3, 0.9, 0.9999)),
        {"p": 0.5, "boundary": "exclusive"},
        {"p": 0.0, "keep": 6},
    )

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Masses are float64."""
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
        ranked = enough_best(logits)
        bound = of_row(total_mass, logits, ranked, peak) * self.columns.exact("p", rows)[:, None]
        is_exclusive = self.columns.gather("boundary", rows)[:, None] == 1  # inclusive 0, exclusive 1
        keep = self.columns.gather("keep", rows)[:, None]
        return operations.drop_below(
            logits, *settled(_nucleus, logits, ranked, peak, bound, is_exclusive, keep)
        )


@parameters
class MinPParams(Params):
    """Keep tokens at least p times as likely as the most likely one (Nguyen et al. 2024)."""

    p: float = param(
        0.0, "Keep tokens at least p times as likely as the most likely one; 0 keeps all.", ge=0, le=1
    )
    keep: int = param(1, "Keep at least this many tokens.", ge=1, le=MOST)


class MinP(Truncation[MinPParams]):
    """Keep tokens at least p times as likely as the most likely one (Nguyen et al. 2024).

    In the log domain: x >= max(x) + ln p, so p = 1 keeps exactly the ties with the maximum.
    """

    name = "min_p"
    Params = MinPParams
    about = Note(
        "x[i] = -inf where p[i] < p * max(p)",
        "Nguyen et al. 2024, Turning Up the Heat: Min-p Sampling, arXiv 2407.01082.",
        "min_p=0.05",
        "transformers, vLLM, SGLang, mlx-lm min_p; llama.cpp --min-p",
    )

    example_values = (*({"p": p} for p in (1e-300, 0.05, 0.5, 1.0)), {"p": 0.9, "keep": 9})

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Sorts only if some row has `keep` above 1."""
        peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST)
        threshold = least_kept(peak, self.columns.exact("p", rows)[:, None])
        return keep_above(logits, threshold, self.columns, rows)


def keep_above(logits: Tensor, threshold: Tensor, columns: Columns, rows: Rows) -> Tensor:
    """Mask logits [A, V] below the threshold [A, 1], except the `keep` largest (a field of `columns`)."""
    largest_keep = max(columns.known("keep", rows))
    if largest_keep == 1:
        return operations.drop_below(logits, threshold)
    last, room = cut(best(logits, largest_keep), columns.gather("keep", rows)[:, None])
    room = torch.where(last < threshold, room, logits.shape[1])
    return operations.drop_below(logits, torch.minimum(threshold, last), room)


def by_parts(sums: Callable[..., Tensor], logits: Tensor, *columns: Tensor) -> Tensor:
    """Return `sums` of logits [A, V] and columns [A, 1], computed for groups of rows that fit the cache."""
    parts = operations.row_parts(logits)
    return torch.cat([sums(logits[part], *(column[part] for column in columns)) for part in parts])


def total_mass(logits: Tensor, peak: Tensor) -> Tensor:
    """Return the sum of exp(logits - peak) over each row [A, 1] float64."""
    return operations.row_sums(mass(logits, peak))


def _nucleus(
    ranked: Tensor, peak: Tensor, bound: Tensor, is_exclusive: Tensor, keep: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return whether the nucleus ends within `ranked` [A, N], its threshold and its room [A, 1].

    peak, bound, is_exclusive, keep [A, 1]. Masses are relative to that of the most likely token.
    """
    sums = operations.row_cumsums(mass(ranked, peak))
    inclusive = (sums < bound).sum(1, keepdim=True) + 1
    exclusive = (sums <= bound).sum(1, keepdim=True)
    count = torch.where(is_exclusive, exclusive, inclusive).maximum(keep)
    return count < ranked.shape[1], *cut(ranked, count)


def mass(logits: Tensor, peak: Tensor) -> Tensor:
    """Return exp(logits - peak) in float64, by exp2, which takes a CPU a quarter of the time of exp."""
    return logits.double().sub_(peak).mul_(_LOG2_E).exp2_()


def least_kept(peak: Tensor, p: Tensor) -> Tensor:
    """Return the smallest logit [A, 1] float32 that min-p keeps, for peak [A, 1] and p [A, 1] float64."""
    return rounded_up(peak.double() + p.log())


def rounded_up(value: Tensor) -> Tensor:
    """Return the smallest float32 >= the float64 value, so that float32 comparisons decide as in float64."""
    nearest = value.float()
    above = torch.nextafter(nearest, torch.full_like(nearest, math.inf))
    return torch.where(nearest.double() < value, above, nearest)


class _Options(NamedTuple):
    """Parameters of xtc by row, [A, 1]; exempt ids [A, N]; a Literal is its index."""

    probability: Tensor
    threshold: Tensor
    on_exempt: Tensor
    compare: Tensor
    ties: Tensor
    mode: Tensor
    keep: Tensor
    exempt: Tensor
    has_exempt: Tensor

    def at(self, index: Tensor | slice) -> _Options:
        return _Options(*(column[index] for column in self))


@parameters
class XtcParams(Params):
    """Exclude the top choices: of the likely tokens only the least likely stays (Weidmann 2024)."""

    probability: float = param(0.0, "Exclude the top choices with this probability; 0 is never.", ge=0, le=1)
    threshold: float = param(
        0.1, "Tokens at least this probable are top choices; all but the least likely of them go.",
        gt=0, le=1, hint="A probability of 0 switches it off.",
    )  # fmt: skip
    exempt: tuple[int | str, ...] = param(
        ("eos", "newline"),
        "Never excluded: eos, stop, special, newline, ids, texts of one token.",
        ge=0,
        le=MOST,
    )
    on_exempt: Literal["keep", "skip", "uncount"] = param(
        "keep",
        "Exempt tokens are top choices that stay (keep) or none (uncount); skip: nothing goes if one would.",
    )
    compare: Literal["ge", "gt"] = param("ge", "A top choice reaches the threshold (ge) or exceeds it (gt).")
    ties: Literal["cut", "keep"] = param(
        "cut", "Equally likely top choices at the end: cut keeps the lowest id, keep keeps all."
    )
    mode: Literal["roll", "expected"] = param(
        "roll", "Roll for each token, or give each token the probability that it has on average over rolls."
    )
    keep: int = param(1, "Exclude nothing if fewer than this many tokens would be left.", ge=1, le=MOST)

    def can_act(self) -> bool:
        """Whether the threshold allows two top choices: their probabilities sum to at most 1."""
        return self.threshold < 0.5 or (self.threshold == 0.5 and self.compare == "ge")


class Xtc(IdStage[XtcParams]):
    """Exclude the top choices: of the likely tokens only the least likely stays (Weidmann 2024).

    The random number depends on the row's seed and position alone. The listed ids are the exempt ones.
    TokenError at admission: an exempt text that is not one token.
    """

    name = "xtc"
    phase = Phase.GATE
    Params = XtcParams
    keeps_faults = True
    about = Note(
        "with the given probability x[i] = -inf where p[i] >= threshold, but the least likely of these",
        "Weidmann 2024, Exclude Top Choices, text-generation-webui PR 6335.",
        "xtc:probability=0.5,threshold=0.1",
        "llama.cpp and koboldcpp exempt nothing; text-generation-webui skips the step; mlx-lm "
        "compares with gt and keeps ties; ExLlamaV2 and V3 are expected and uncount",
    )

    example_values = (
        {"probability": 1.0, "threshold": 0.01},
        {"probability": 0.5, "threshold": 1e-300},
        {"probability": 1.0, "threshold": 0.02, "exempt": (), "ties": "keep", "compare": "gt"},
        {
            "probability": 1.0,
            "threshold": 0.004,
            "exempt": ("special", "stop", 12, "e"),
            "on_exempt": "uncount",
        },
        {"probability": 1.0, "threshold": 0.004, "exempt": ("newline", 20, 21, 22), "on_exempt": "skip"},
        {"probability": 1.0, "threshold": 0.01, "mode": "expected"},
        {"probability": 0.3, "threshold": 0.01, "mode": "expected", "exempt": (12, 13)},
        {"probability": 1.0, "threshold": 0.001, "keep": 40},
        {"probability": 1e-300, "threshold": 0.6},
    )

    def listed(self, params: XtcParams, request: Admission) -> Iterable[int]:
        """Return the exempt ids below the model's vocabulary size."""
        return (
            token
            for token in exempt_ids(params.exempt, self.env, request, self.name)
            if token < self.env.vocab_size
        )

    def admit(self, slot: int, params: XtcParams, request: Admission) -> None:
        """Set up the slot; add a notice if the threshold allows no two top choices."""
        super().admit(slot, params, request)
        if not params.can_act():
            self.add_notice(
                f"xtc has a threshold of {params.threshold:g}, which no two tokens can both pass, so it "
                "changes nothing: give less than 0.5."
            )

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. On a CPU only rows that exclude anything are processed."""
        options = self._options(rows)
        acts = (_rolls(rows)[:, None] < options.probability) | (options.mode == 1)
        if logits.device.type != "cpu":
            return torch.where(acts, _without_top(logits, options), logits)
        at = acts.squeeze(1).nonzero().squeeze(1)
        for part in operations.row_parts(logits, len(at)) if len(at) else ():
            some = at[part]
            logits[some] = _without_top(logits[some], options.at(some))
        return logits

    def notes(self, rows: Rows, tokens: Sequence[int]) -> list[str]:
        """Return the random number of each row, and the probability below which the stage acts."""
        pairs = zip(_rolls(rows).tolist(), self.columns.exact("probability", rows).tolist(), strict=True)
        return [f"rolled {roll:.2f}, acts below {limit:g}" for roll, limit in pairs]

    def idle(self, rows: Rows) -> list[str]:
        """Return whether the random number was too high, or there is no top choice to exclude."""
        options, rolls = self._options(rows), _rolls(rows)[:, None]
        acts = ((rolls < options.probability) | (options.mode == 1)).squeeze(1).tolist()
        return ["no two tokens above the threshold" if each else "the roll was too high" for each in acts]

    def _options(self, rows: Rows) -> _Options:
        exact = [self.columns.exact(name, rows)[:, None] for name in ("probability", "threshold")]
        others = [self.columns.gather(name, rows)[:, None] for name in _Options._fields[2:-2]]
        return _Options._make([*exact, *others, *self.ids.gather(rows)])


def _rolls(rows: Rows) -> Tensor:
    """Return a random number in (0, 1) for each row [A] float64."""
    keys = rng.row_keys(rows.seeds, rows.positions, rng.Stream.XTC)
    return rng.uniform(keys, torch.zeros_like(keys))


def _without_top(logits: Tensor, options: _Options) -> Tensor:
    """Return logits [A, V] without the top choices; with `mode: expected`, with their probability lowered."""
    peak = logits.amax(1, keepdim=True).clamp_(min=LOWEST).double()
    total = total_mass(logits, peak)
    gone = _excluded(logits, peak + options.threshold.log() + total.log(), options)
    out = logits.masked_fill(gone, -math.inf)
    is_expected = options.mode == 1
    if not _may(is_expected):
        return out
    share = operations.row_sums(mass(logits, peak) * gone) / total
    left = 1 - options.probability
    # Other tokens gain the factor 1 + probability share / (1 - share); excluded tokens lose that mass.
    shift = (left * (1 - share) / (1 - left * share)).log()
    shifted = (logits.double() + shift).clamp_(min=LOWEST).float()
    return torch.where(gone & is_expected & (shift > -math.inf), shifted, out)


def _excluded(logits: Tensor, threshold: Tensor, options: _Options) -> Tensor:
    """Return which logits [A, V] are excluded if the stage acts, for a threshold [A, 1] float64."""
    least = rounded_up(threshold)
    above = torch.nextafter(least, torch.full_like(least, math.inf))
    is_top = logits >= torch.where((options.compare == 1) & (least.double() == threshold), above, least)
    is_exempt = torch.zeros_like(is_top)
    is_exempt.scatter_(1, options.exempt, options.has_exempt.expand_as(options.exempt))
    if logits.is_cuda:
        gone = _top_but_last(logits, is_top, is_exempt, options)
    else:  # few ids are a top choice in any row
        at, gone = is_top.any(0).nonzero().squeeze(1), torch.zeros_like(is_top)
        if len(at):
            gone[:, at] = _top_but_last(logits[:, at], is_top[:, at], is_exempt[:, at], options)
    if _may(options.keep > 1):
        num_left = (logits > -math.inf).sum(1, keepdim=True) - gone.sum(1, keepdim=True)
        gone &= num_left >= options.keep
    return gone


def _top_but_last(logits: Tensor, is_top: Tensor, is_exempt: Tensor, options: _Options) -> Tensor:
    """Return which top choices are excluded, for logits and flags [A, N] of all top choices."""
    is_top = is_top & ~(is_exempt & (options.on_exempt == 2))
    last = logits.masked_fill(~is_top, math.inf).amin(1, keepdim=True)
    gone = is_top & (logits > last)
    tied = is_top & (logits == last) & (options.ties == 0)
    if _may(tied.sum(1) > 1):
        gone |= operations.is_surplus(tied, torch.ones_like(options.ties))
    is_skip = (options.on_exempt == 1) & options.has_exempt
    gone &= ~((gone & is_exempt).any(1, keepdim=True) & is_skip)
    return gone & ~(is_exempt & (options.on_exempt == 0))


def _may(flags: Tensor) -> bool:
    """Whether any flag is set; True on a GPU, where reading the flags takes longer than computing on."""
    return flags.is_cuda or bool(flags.any())


# Numbers of largest logits that a CPU sorts before it sorts the whole row. A GPU sorts the whole row at once,
# without synchronisation.
_RUNGS = (128, 16384)


def best(logits: Tensor, count: int) -> Tensor:
    """Return the `count` largest values of each row, descending, [A, min(count, V)]."""
    return operations.best_values(logits, min(count, logits.shape[1]))


def enough_best(logits: Tensor) -> Tensor:
    """Return the largest values of each row, descending [A, N], enough for most rows; on a GPU all."""
    width = logits.shape[1]
    is_wide = logits.device.type == "cpu" and width > _RUNGS[-1]
    return best(logits, _RUNGS[0] if is_wide else width)


def of_row(sums: Callable[..., Tensor], logits: Tensor, ranked: Tensor, *columns: Tensor) -> Tensor:
    """Return `sums(logits, *columns [A, 1])` [A, N]; from `ranked` alone if it has all values of each row.

    A GPU always uses all logits, because checking that would synchronise.
    """
    if logits.device.type != "cpu":
        return sums(logits, *columns)
    results = sums(ranked, *columns)
    if ranked.shape[1] < logits.shape[1]:
        at = (ranked[:, -1] > -math.inf).nonzero().squeeze(1)
        for part in operations.row_parts(logits, len(at)):
            some = at[part]
            results[some] = sums(logits[some], *(column[some] for column in columns))
    return results


def settled(
    decide: Callable[..., tuple[Tensor, ...]], logits: Tensor, ranked: Tensor, *columns: Tensor
) -> tuple[Tensor, ...]:
    """Return the results of `decide(ranked [A, N], *columns [A, 1])`, each [A, 1], without the first.

    The first result says whether the other results are certain. Uncertain rows are decided again with more of
    their largest values, in the end with all.
    """
    is_certain, *results = decide(ranked, *columns)
    width = logits.shape[1]
    if ranked.shape[1] < width:
        at = is_certain.logical_not().squeeze(1).nonzero().squeeze(1)
        count = next((rung for rung in _RUNGS if rung > ranked.shape[1]), width)
        for part in operations.row_parts(logits, len(at)) if len(at) else ():
            some = at[part]
            few, theirs = logits[some], [column[some] for column in columns]
            more = settled(decide, few, best(few, count), *theirs)
            for have, new in zip(results, more, strict=True):
                have[some] = new
    return tuple(results)


def cut(ranked: Tensor, count: Tensor) -> tuple[Tensor, Tensor]:
    """Return the count-th largest value, and the number of its ties among the first count; all [A, 1]."""
    count = count.clamp(max=ranked.shape[1])
    threshold = ranked.gather(1, count - 1)
    return threshold, count - (ranked > threshold).sum(1, keepdim=True)
