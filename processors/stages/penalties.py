"""The stages `repetition`, `frequency` and `presence`, penalties on tokens that already occurred, and
`bias` and `sequence_bias`, which add to the logits of tokens.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from processors.base import Admission, Env, Processor
from processors.errors import TokenError
from processors.later import graphs, rng, torch
from processors.params import MOST, Note, Params, Phase, param, parameters
from processors.stages.shared import (
    HIGHEST,
    LOWEST,
    IdStage,
    Lists,
    Scope,
    TableStage,
    checked,
    edit,
    exempt_ids,
    places,
    token_id,
)

if TYPE_CHECKING:
    from torch import Tensor

    from processors.rows import Rows, Visible

_SPARED = "Never penalised and never counted: special, stop, eos, newline, ids, texts of one token."


@parameters
class PenaltyParams(Params):
    """The parameters of repetition, frequency and presence; subclasses change defaults and add fields."""

    penalty: float = param(0.0, "Strength.")
    scope: Scope = param("output", "Which tokens count: prompt, output or both.")
    window: int | None = param(
        None, "Only the last this many tokens of the scope count; null is all.", ge=1, le=MOST,
        hint="null means all tokens; leave the penalty at its default to switch it off.",
    )  # fmt: skip
    exempt: tuple[int | str, ...] = param((), _SPARED, ge=0, le=MOST)


class Penalty(IdStage[PenaltyParams]):
    """Base of the penalties: count the tokens in scope and edit their logits.

    Counts come from sorting the ids in scope, without a table of slots x vocabulary. The listed ids are the
    exempt ones. TokenError at admission: an exempt text that is not one token.
    """

    phase = Phase.ADJUST
    keeps_faults = True

    needs_counts: ClassVar[bool] = False

    @abstractmethod
    def penalised(self, old: Tensor, counts: Tensor | None, penalty: Tensor) -> Tensor:
        """Return new values of logits [A, N] whose tokens occurred; penalty is [A, 1].

        counts [A, N]: occurrences of each token, for a stage that `needs_counts`; None: each occurs.
        """

    def listed(self, params: PenaltyParams, request: Admission) -> Iterable[int]:
        """Return the exempt ids: of keywords, and ids listed one by one."""
        return exempt_ids(params.exempt, self.env, request, self.name)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        ids, counts = self._in_scope(logits.shape[1], rows)
        if not ids.shape[1]:
            return logits
        old = logits.gather(1, ids).double()
        new = self.penalised(old, counts, self.columns.exact("penalty", rows)[:, None])
        is_penalised = None if counts is None else counts > 0
        if not self.ids.are_empty(rows):
            is_exempt = self._is_exempt(ids, rows)
            is_penalised = ~is_exempt if is_penalised is None else is_penalised & ~is_exempt
        return edit(logits, ids, old, new if is_penalised is None else torch.where(is_penalised, new, old))

    def notes(self, rows: Rows, tokens: Sequence[int]) -> list[str]:
        """Return for each row how often its token of `tokens` occurs in the scope, and at which positions."""
        seen, asked = self._seen(rows), graphs.upload_ints(tokens, rows.slots.device)[:, None]
        is_asked = (seen.valid & (seen.ids == asked)).tolist()
        prompts = rows.history.prompt_lengths[rows.slots].tolist()
        columns = ([column for column, is_here in enumerate(row) if is_here] for row in is_asked)
        return [places(some, prompt) if some else "" for some, prompt in zip(columns, prompts, strict=True)]

    def idle(self, rows: Rows) -> list[str]:
        some = self._seen(rows).valid.any(1).tolist()
        return ["the tokens seen are exempt or masked" if any_seen else "no token seen" for any_seen in some]

    def _reach(self, rows: Rows) -> tuple[Tensor, Tensor, Tensor]:
        """Return the scope and the window of each row, as `Rows.scoped` takes them."""
        scope = self.columns.gather("scope", rows)  # prompt 0, output 1, both 2
        return scope != 1, scope != 0, self.columns.gather("window", rows)

    def _seen(self, rows: Rows) -> Visible:
        return rows.scoped(*self._reach(rows))

    def _in_scope(self, width: int, rows: Rows) -> tuple[Tensor, Tensor | None]:
        """Return the ids in scope [A, W]; their counts [A, W], or whether any occur [A, 1]; None: all do."""
        find = _counted if self.needs_counts else _found
        scopes, windows = self.columns.known("scope", rows), self.columns.known("window", rows)
        if scopes != {"both"} or windows != {None} or rows.has_forced:
            return find(self._seen(rows), width)
        ids = None if self.needs_counts or rows.history.largest >= width else rows.unpadded()
        return find(rows.visible(), width) if ids is None else (ids, None)

    def _is_exempt(self, ids: Tensor, rows: Rows) -> Tensor:
        exempt, filled = self.ids.gather(rows)
        at = torch.searchsorted(exempt, ids).clamp_(max=exempt.shape[1] - 1)
        return (exempt.gather(1, at) == ids) & filled


def _found(seen: Visible, width: int) -> tuple[Tensor, Tensor]:
    """Return the ids in scope [A, W], and whether the row has any [A, 1].

    Entries out of scope or outside the vocabulary repeat an id in scope, so all writes to an id are equal.
    """
    if not seen.ids.shape[1]:
        return seen.ids, seen.valid
    is_valid = seen.valid & (seen.ids < width)
    has_any, first = is_valid.max(1, keepdim=True)
    return torch.where(is_valid, seen.ids, seen.ids.gather(1, first).clamp_(max=width - 1)), has_any


def _counted(seen: Visible, width: int) -> tuple[Tensor, Tensor]:
    """Return the ids of `_found` [A, W], and how often each entry's id occurs in scope [A, W], by sorting."""
    ids = torch.where(seen.valid, seen.ids, width)
    ids = torch.nn.functional.pad(ids, (0, 1), value=width).sort(1).values
    counts = torch.searchsorted(ids, ids, right=True) - torch.searchsorted(ids, ids)
    counts = torch.where(ids < width, counts, 0)
    column = torch.where(ids < width, torch.arange(ids.shape[1], device=ids.device), 0)
    ids, counts = ids.gather(1, column), counts.gather(1, column)
    return ids.clamp_(max=width - 1), counts


def _latest(seen: Visible, width: int) -> tuple[Tensor, Tensor]:
    """Return the ids in scope [A, W], and the column of the last occurrence of each [A, W]; -1 out of scope.

    Entries out of scope or outside the vocabulary repeat an id in scope and its column.
    """
    ids = torch.where(seen.valid & (seen.ids < width), seen.ids, width)
    ids = torch.nn.functional.pad(ids, (0, 1), value=width)
    ordered, columns = ids.sort(dim=1, stable=True)
    column = columns.gather(1, torch.searchsorted(ordered, ids, right=True) - 1)
    at = torch.where(ids < width, torch.arange(ids.shape[1], device=ids.device), ids.argmin(1, keepdim=True))
    ids, column = ids.gather(1, at), column.gather(1, at)
    return ids.clamp(max=width - 1), torch.where(ids < width, column, -1)


@parameters
class RepetitionParams(PenaltyParams):
    """Divide positive and multiply negative logits of tokens seen before (Keskar et al. 2019)."""

    penalty: float = param(
        1.0, "Above 1 makes tokens seen before less likely, below 1 more likely.", gt=0, hint="1.0 means off."
    )
    scope: Scope = param("both", "Which tokens count: prompt, output or both.")
    exempt: tuple[int | str, ...] = param(("special",), _SPARED, ge=0, le=MOST)
    slope: float = param(
        1.0, "Share of a penalty above 1 that tokens have which are seen in the older half only.", ge=0
    )
    sustain: int | None = param(
        None, "The penalty is full for this many last tokens, then it fades; null is all.", ge=1, le=MOST
    )
    decay: int = param(0, "Number of tokens before those over which it fades; 0: it ends.", ge=0, le=MOST)
    decay_space: Literal["penalty", "logit"] = param(
        "penalty", "What fades: the penalty towards 1, or the difference that it makes to the logit."
    )


class Repetition(Penalty):
    """x = x / penalty if x > 0 else x * penalty for tokens seen before (Keskar et al. 2019, CTRL).

    With `slope`, `sustain` or `decay` the strength depends on the distance to the token's latest occurrence.
    """

    name = "repetition"
    Params = RepetitionParams
    about = Note(
        "x[i] = x[i] / penalty if x[i] > 0 else x[i] * penalty, once for every token i seen",
        "Keskar et al. 2019, CTRL: A Conditional Transformer Language Model, arXiv 1909.05858.",
        "repetition:penalty=1.1,window=64",
        "transformers, vLLM, SGLang, mlx-lm repetition_penalty, llama.cpp --repeat-penalty; "
        "transformers encoder_repetition_penalty r is penalty=1/r,scope=prompt; slope is koboldcpp's "
        "rep_pen_slope; token_repetition_range r and token_repetition_decay of ExLlamaV2 are sustain=r+1 "
        "and decay, those of ExLlamaV3 sustain=r and decay_space=logit",
    )

    example_values = (
        {"penalty": 1.3},
        {"penalty": 0.5, "scope": "output", "exempt": ()},
        {"penalty": 1e30, "scope": "prompt", "window": 4, "exempt": ("stop", " the", 9)},
        {"penalty": 1.7, "slope": 0.4, "window": 7},
        {"penalty": 3.0, "sustain": 2, "decay": 4, "exempt": ("stop",)},
        {
            "penalty": 0.5,
            "sustain": 1,
            "decay": 3,
            "decay_space": "logit",
            "slope": 0.1,
            "scope": "output",
            "exempt": (),
        },
        {"penalty": 1e30, "sustain": 3, "scope": "prompt"},
    )

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        values = self.columns.known
        if values("slope", rows) == {1.0} and values("sustain", rows) == {None}:
            return super().apply(logits, rows)
        ids, column = _latest(self._seen(rows), logits.shape[1])
        if not ids.shape[1]:
            return logits
        start, end = (bound[:, None] for bound in rows.bounds(*self._reach(rows)))
        old = logits.gather(1, ids).double()
        new = self._faded(old, end - 1 - column, (end - start) // 2 > column - start, rows)
        spared = column < 0
        if not self.ids.are_empty(rows):
            spared = spared | self._is_exempt(ids, rows)
        return edit(logits, ids, old, torch.where(spared, old, new))

    def penalised(self, old: Tensor, counts: Tensor | None, penalty: Tensor) -> Tensor:
        return torch.where(old > 0, old / penalty, old * penalty)

    def _faded(self, old: Tensor, distance: Tensor, is_older: Tensor, rows: Rows) -> Tensor:
        """Return the logits [A, W] of tokens last seen `distance` [A, W] tokens before the last one.

        A full penalty is not recomputed, so that its bits do not depend on the other rows.
        """
        exact, gather = self.columns.exact, self.columns.gather
        penalty, slope = exact("penalty", rows)[:, None], exact("slope", rows)[:, None]
        penalty = torch.where(is_older & (penalty > 1) & (slope != 1), 1 + (penalty - 1) * slope, penalty)
        behind = distance - gather("sustain", rows)[:, None] + 1
        decay = gather("decay", rows)[:, None]
        weight = torch.where(behind < decay, 1 - behind / decay.clamp(min=1), 0)
        is_full, in_logit = behind <= 0, gather("decay_space", rows)[:, None] == 1  # penalty 0, logit 1
        faded = torch.where(is_full | in_logit, penalty, 1 + (penalty - 1) * weight)
        new = self.penalised(old, distance, faded)
        mixed = torch.where(weight > 0, old * (1 - weight) + new * weight, old)
        return torch.where(in_logit & ~is_full, mixed, new)


@parameters
class FrequencyParams(PenaltyParams):
    """Subtract the penalty once per occurrence (OpenAI)."""

    penalty: float = param(0.0, "Subtracted from a token's logit for each time it occurred.")


class Frequency(Penalty):
    """x = x - penalty * count (OpenAI)."""

    name = "frequency"
    Params = FrequencyParams

    needs_counts = True
    about = Note(
        "x[i] = x[i] - penalty * (times that token i was seen)",
        "OpenAI's frequency_penalty.",
        "frequency=0.4",
        "vLLM, SGLang, mlx-lm frequency_penalty; llama.cpp --frequency-penalty",
    )

    example_values = (
        {"penalty": 0.4},
        {"penalty": -1.5, "scope": "both", "exempt": ("special", "stop")},
        {"penalty": 1e300, "scope": "prompt", "window": 2},
    )

    def penalised(self, old: Tensor, counts: Tensor | None, penalty: Tensor) -> Tensor:
        assert counts is not None
        return old - penalty * counts


@parameters
class PresenceParams(PenaltyParams):
    """Subtract the penalty once from tokens that occurred (OpenAI)."""

    penalty: float = param(0.0, "Subtracted from a token's logit if it occurred.")


class Presence(Penalty):
    """x = x - penalty for tokens that occurred (OpenAI)."""

    name = "presence"
    Params = PresenceParams
    about = Note(
        "x[i] = x[i] - penalty for every token i seen",
        "OpenAI's presence_penalty.",
        "presence=0.6",
        "vLLM, SGLang, mlx-lm presence_penalty; llama.cpp --presence-penalty",
    )

    example_values = (
        {"penalty": 0.7},
        {"penalty": -2.0, "scope": "both", "window": 3},
        {"penalty": 0.1, "scope": "prompt", "exempt": ("stop", 5)},
    )

    def penalised(self, old: Tensor, counts: Tensor | None, penalty: Tensor) -> Tensor:
        return old - penalty


@parameters
class BiasParams(Params):
    """Add to the logits of some tokens."""

    bias: tuple[tuple[int | str, float], ...] = param(
        (),
        "Added to the logit of a token, given by id or by a text that is one token; -inf bans it.",
        finite=False,
    )


class Bias(Processor[BiasParams]):
    """x[i] = x[i] + bias[i] for some tokens; -inf bans a token, and a masked token stays masked.

    A key is an id, or a text that is exactly one token. TokenError at admission: a text of several tokens
    (the message shows them), an id outside the vocabulary, an id that is listed twice.
    """

    name = "bias"
    phase = Phase.ADJUST
    Params = BiasParams
    about = Note(
        "x[i] = x[i] + bias[i]",
        "OpenAI's logit_bias.",
        'bias={"42": 1.5, " the": -2}',
        "vLLM, SGLang and llama.cpp logit_bias, transformers sequence_bias",
    )

    example_values = ({"bias": ((5, 2.5), (" the", -math.inf), (283, -1e300))}, {"bias": (("cat", -100.0),)})

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.ids = Lists(torch.int64, env.device)
        self.values = Lists(torch.float64, env.device)

    def admit(self, slot: int, params: BiasParams, request: Admission) -> None:
        super().admit(slot, params, request)
        values: dict[int, float] = {}
        for key, value in params.bias:
            token = token_id(key, self.env, "bias")
            if token in values:
                raise TokenError(f"bias names token {token} twice, the second time as {key!r}. Leave one.")
            values[token] = value
        self.ids.write(slot, list(values))
        self.values.write(slot, list(values.values()))

    def fork(self, source: int, target: int) -> None:
        super().fork(source, target)
        self.ids.copy(source, target)
        self.values.copy(source, target)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        ids, _ = self.ids.gather(rows)
        bias, _ = self.values.gather(rows)  # both are padded with their last entry, so they agree
        old = logits.gather(1, ids).double()
        banned = torch.where(bias == -math.inf, bias, old)
        return edit(logits, ids, banned, old + bias)


SequenceKey = int | tuple[int, ...] | str  # an id, several, or a text


@parameters
class SequenceBiasParams(Params):
    """Add to the logits of tokens that complete a sequence (transformers)."""

    biases: tuple[tuple[SequenceKey, float], ...] = param(
        (),
        "Added to the last token of a sequence, given as text or ids, where its other tokens come before; "
        "-inf bans it.",
        finite=False,
    )


class SequenceBias(TableStage[SequenceBiasParams, "Sequences"]):
    """x[i] = x[i] + bias for each sequence whose last id is i and whose other ids end the text.

    A text key means the ids that the tokenizer makes of it. The text consists of prompt, output and visible
    drafts. -inf bans the completion. TokenError at admission: a text without a tokenizer or without tokens,
    an id outside the vocabulary, a sequence that is listed twice.
    """

    name = "sequence_bias"
    phase = Phase.ADJUST
    Params = SequenceBiasParams
    about = Note(
        "x[i] = x[i] + bias for each sequence that i completes behind the last tokens",
        "transformers' SequenceBiasLogitsProcessor.",
        'sequence_bias={" of the": -2}',
        "transformers sequence_bias, the same; a sequence of one token is always biased",
    )

    example_values = (
        {"biases": ((" the cat", 2.5), ((7, 9), -math.inf), ((0, 2, 7, 7, 7, 1, 0, 5), 3.0))},
        {"biases": (("the", -1e300), ("ab", 2.0), ((12, 12, 30), -1.0), ((12, 30), 0.5), (30, 1e30))},
    )

    def tables(self, params: SequenceBiasParams) -> Sequences:
        biases: dict[tuple[int, ...], float] = {}
        for key, value in params.biases:
            tokens = self._tokens(key)
            if tokens in biases:
                raise TokenError(f"sequence_bias names {key!r} twice, as tokens {list(tokens)}. Leave one.")
            biases[tokens] = value
        return Sequences(biases, self.env.device)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Makes one pass for each distinct list of sequences."""
        places = self.places(rows)
        for sequences, index in places.items():
            at = graphs.upload(index, logits.device)[:, None]
            some = rows if len(places) == 1 else rows.select(index)
            ids, added = sequences.added(rng.last_ids(some, sequences.reach, _NONE, prompt=True)[0])
            old = logits[at, ids].double()
            new = (old + added).clamp_(LOWEST, HIGHEST).masked_fill_(added == -math.inf, -math.inf)
            logits[at, ids] = torch.where(old.isinf(), old, new).float()
        return logits

    def _tokens(self, key: SequenceKey) -> tuple[int, ...]:
        """Return the ids of a key: an id, several ids, or a text. TokenError if a text has none."""
        if isinstance(key, str):
            if self.env.vocabulary is None:
                raise TokenError(f"sequence_bias names the text {key!r}, but has no tokenizer. Give ids.")
            key = tuple(self.env.vocabulary.encode(key, special=False))
        tokens = (key,) if isinstance(key, int) else key
        if not tokens:
            raise TokenError("sequence_bias names a sequence without tokens. Remove it.")
        return checked(tokens, self.env, "sequence_bias")


class Sequences:
    """Sequences as tensors: all ids but the last [N, P], right-aligned; biases and last ids [N]."""

    def __init__(self, biases: dict[tuple[int, ...], float], device: torch.device) -> None:
        self.reach = max(map(len, biases)) - 1
        first = [(_ANY,) * (self.reach + 1 - len(tokens)) + tokens[:-1] for tokens in biases]
        self._first = graphs.upload(first, device, torch.int64).view(len(biases), self.reach)
        self._bias = graphs.upload(list(biases.values()), device, torch.float64)
        last = sorted({tokens[-1] for tokens in biases})
        self._ids = graphs.upload(last, device)
        self._place = graphs.upload([last.index(tokens[-1]) for tokens in biases], device)

    def added(self, tail: Tensor) -> tuple[Tensor, Tensor]:
        """Return the distinct last ids [U], and the bias of each after tails [A, P] of ids, [A, U]."""
        matches = ((self._first == tail[:, None]) | (self._first == _ANY)).all(2)
        added = torch.zeros(len(tail), len(self._ids), dtype=torch.float64, device=tail.device)
        return self._ids, added.index_add_(1, self._place, torch.where(matches, self._bias, 0))


_ANY = -1  # padding before a shorter sequence; matches any id
_NONE = -2  # padding before the first token of a text; matches no id
