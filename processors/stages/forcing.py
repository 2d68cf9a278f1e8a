"""Stages that write text of their own, `force` and `reasoning_budget` on `ScriptStage`, and `length_decay`
and `length_boost`, which move the end-of-text logits with the output's length.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, Self, cast

from processors.base import Admission, Env, Noise, P, Processor, Vocabulary
from processors.errors import ParamError, TokenError
from processors.later import forced_tokens, graphs, torch
from processors.params import MOST, Note, Params, Phase, param, parameters
from processors.request_values import Marker
from processors.stages.shared import IdStage, Lists, check_texts, checked, edit, mask_pairs

if TYPE_CHECKING:
    from torch import Tensor

    from processors.rows import Rows


class Script(ABC):
    """Immutable state of a stage's own text after some output tokens: which ids have to follow."""

    @property
    @abstractmethod
    def ahead(self) -> tuple[int, ...]:
        """Ids that have to come next; () if the model chooses."""

    @property
    def is_held(self) -> bool:
        """Whether end ids are masked while the model chooses."""
        return False

    @abstractmethod
    def step(self, token: int) -> Self:
        """Return the state after one more token."""


class ScriptReplay:
    """The script of a slot after its committed tokens, and after each of the drafts that rows see.

    `decide` replaces the state of a row by one that depends on its logits. The decision holds for later rows
    and for committed tokens, until the row is decided again.
    """

    def __init__(self, script: Script) -> None:
        self._drafts: tuple[int, ...] = ()
        self._plain, self._decided = [script], [script]

    def after(self, drafts: tuple[int, ...], *, is_plain: bool = False) -> Script:
        """Return the state after the drafts; `is_plain`: without a decision by the row's own logits."""
        if self._drafts[: len(drafts)] != drafts:
            shared = next(
                (n for n, (a, b) in enumerate(zip(self._drafts, drafts, strict=False)) if a != b),
                min(len(self._drafts), len(drafts)),
            )
            self._cut(shared)
            for token in drafts[shared:]:
                self._plain.append(self._decided[-1].step(token))
                self._decided.append(self._plain[-1])
            self._drafts = drafts
        return (self._plain if is_plain else self._decided)[len(drafts)]

    def decide(self, drafts: tuple[int, ...], script: Script) -> None:
        """Set the state of the row that sees these drafts."""
        if self.after(drafts) is not script:
            self._cut(len(drafts))
            self._decided[-1] = script

    def commit(self, tokens: Sequence[int]) -> None:
        """Advance by tokens that were appended to the output."""
        script = self.after(tuple(tokens), is_plain=True) if tokens else None
        if script is not None:
            self._drafts, self._plain, self._decided = (), [script], [script]

    def fork(self) -> ScriptReplay:
        """Return an independent copy."""
        other = ScriptReplay(self._plain[0])
        other._drafts, other._plain, other._decided = self._drafts, [*self._plain], [*self._decided]
        return other

    def _cut(self, count: int) -> None:
        self._drafts = self._drafts[:count]
        del self._plain[count + 1 :], self._decided[count + 1 :]


class ScriptStage(Processor[P]):
    """Masks all ids but the next id of a request's script. If that id is masked already, no token is left.

    Ids written by the stage count for penalties like any others.
    """

    phase = Phase.CONSTRAIN
    remembers = True

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._replays: dict[int, ScriptReplay] = self.by_slot(ScriptReplay.fork)
        self._ends: dict[int, tuple[int, ...]] = self.by_slot()

    @abstractmethod
    def script(self, params: P, request: Admission) -> Script:
        """Return the state before the first output token."""

    def admit(self, slot: int, params: P, request: Admission) -> None:
        super().admit(slot, params, request)
        self._replays[slot] = ScriptReplay(self.script(params, request))
        ends = {*self.env.eos_ids, *request.stop_ids}
        self._ends[slot] = tuple(sorted(token for token in ends if 0 <= token < self.env.vocab_size))

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        self._replays[slot].commit(tokens)

    def predicted(self, slot: int, noise: Noise | None) -> tuple[tuple[int, float], ...]:
        """Return the ids that have to come next, with probability 1."""
        return tuple((token, 1.0) for token in self._replays[slot].after(()).ahead)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V]. Rows where the model chooses are unchanged, or have the end ids masked."""
        self._decide(logits, rows)
        only, held = dict[int, int](), dict[int, tuple[int, ...]]()
        for row, (slot, drafts) in enumerate(zip(rows.host_slots, rows.host_drafts, strict=True)):
            script = self._replays[slot].after(drafts)
            if ahead := script.ahead:
                only[row] = ahead[0]
            elif script.is_held and self._ends[slot]:
                held[row] = self._ends[slot]
        if held:
            mask_pairs(logits, [(row, token) for row, ends in held.items() for token in ends])
        if only:
            at = graphs.upload([*only.items()], logits.device, torch.int64)
            kept = logits[at[:, 0], at[:, 1]]
            logits.index_fill_(0, at[:, 0], -math.inf)
            logits[at[:, 0], at[:, 1]] = kept
        return logits

    def idle(self, rows: Rows) -> list[str]:
        return ["the model chooses here"] * len(rows)

    def _decide(self, logits: Tensor, rows: Rows) -> None:
        """Let scripts decide by the logits of their rows; by default they do not."""


def spelled(text: str, vocabulary: Vocabulary | None, subject: str) -> tuple[int, ...]:
    """Return the ids of a text inside an output, by the tokenizer. TokenError without a tokenizer.

    A space that the tokenizer puts before every text is not added inside an output.
    """
    if vocabulary is None:
        raise TokenError(f"{subject} works on texts, but there is no tokenizer. Give token ids.")
    for before in ("", "\n", "a"):
        if ids := forced_tokens.tokens_behind(vocabulary, before, text):
            return ids
    if not (ids := tuple(vocabulary.encode(text, special=False))):  # special tokens have no bytes
        raise TokenError(f"The tokenizer has no tokens for the text {text[:60]!r} of {subject}.")
    return ids


@dataclass(frozen=True, slots=True, eq=False)
class _Writing(Script):
    """A text that is written once, after at most `begin` output tokens; None for no limit.

    State: `written`, ids of the text so far, None before it begins; `count`, output tokens so far.
    """

    ids: tuple[int, ...]
    begin: int | None = None
    marker: Marker | None = None
    after_id: int | None = None
    before_end: bool = False
    written: int | None = None
    count: int = 0
    tail: bytes = b""  # last output bytes, while the stage waits for a marker text

    @property
    def ahead(self) -> tuple[int, ...]:
        return () if self.written is None else self.ids[self.written :]

    @property
    def is_held(self) -> bool:
        return self.before_end and self.written is None

    def begun(self) -> _Writing:
        return replace(self, written=0)

    def step(self, token: int) -> _Writing:
        if self.written is not None:
            return replace(self, written=min(self.written + 1, len(self.ids)))
        count, tail = self.count + 1, b""
        if self.marker is not None:
            tail_or_none = self.marker.step(self.tail, token)
            is_here, tail = tail_or_none is None, tail_or_none or b""
        else:
            is_here = token == self.after_id or count == self.begin
        return replace(self, written=0 if is_here else None, count=count, tail=tail)


TEXT_LIMIT = 16384  # bytes of a text that is forced or waited for


@parameters
class ForceParams(Params):
    """Write a text into the output at a place."""

    text: str = param("", "This text is written into the output, cut into tokens by the tokenizer.")
    ids: tuple[int, ...] = param((), "In place of a text: these token ids.", ge=0, le=MOST)
    at: Literal["start", "text", "id", "tokens", "end"] = param(
        "start",
        "Where: at the start, behind a text (after), an id (after_id) or a number of tokens (after_tokens), "
        "or before the end.",
    )
    after: str = param("", "With at = text: it follows the first place of this text in the output.")
    after_id: int | None = param(None, "With at = id: it follows the first one of this id.", ge=0, le=MOST)
    after_tokens: int = param(0, "With at = tokens: it follows this many output tokens.", ge=0, le=MOST)

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        if self.text and self.ids:
            raise ParamError("text and ids are both given. Leave one out.")
        for name, at in (("after", "text"), ("after_id", "id"), ("after_tokens", "tokens")):
            is_given = getattr(self, name) != self.default(name)
            if is_given and self.at != at:
                raise ParamError(f"{name} goes with at={at}, but at is {self.at}.")
            if self.at == at and not is_given and name != "after_tokens":
                raise ParamError(f"at is {at}, which needs {name}.")
        _check_texts(self, "text", "after")

    def is_off(self) -> bool:
        return not self.text and not self.ids


class Force(ScriptStage[ForceParams]):
    """Write a text once: at the start, after a text, an id or a number of tokens, or before the end.

    "Before the end" is where an end-of-text or stop id has the largest logit, or where `max_tokens` leaves
    room for the text only; until then end ids are masked. TokenError at admission: an id outside the
    vocabulary, or a text without a tokenizer.
    """

    name = "force"
    Params = ForceParams
    about = Note(
        "x[i] = -inf for every i but the next id of the text, from its place on; "
        "before the end: where an end has the largest x, or max_tokens leaves no more room",
        "NVIDIA's logits-processor-zoo: TriggerPhrase, ForceLastPhrase.",
        'force:text="Answer: ",at=end',
        "transformers forced_bos_token_id and forced_eos_token_id, which revive a masked id",
    )

    example_values = (
        {"text": " the cat sat"},
        {"ids": (7, 7, 200)},
        {"text": "😀é", "at": "text", "after": "at the"},
        {"text": "\n\n", "at": "id", "after_id": 7},
        {"text": "abab", "at": "tokens", "after_tokens": 2},
        {"text": "a", "at": "tokens", "after_tokens": 10_000},
        {"text": " the", "at": "end"},
    )

    def script(self, params: ForceParams, request: Admission) -> Script:
        ids = checked(params.ids or spelled(params.text, self.env.vocabulary, "force"), self.env, "force")
        marker, begin = None, None
        if params.at == "text":
            if self.env.vocabulary is None:
                raise TokenError("force waits for a text, but there is no tokenizer. Use at=id.")
            marker = Marker.of(params.after, self.env.vocabulary)
            begin = 0 if marker.ends(request.prompt) else None
        elif params.at == "tokens":
            begin = params.after_tokens
        elif params.at == "start":
            begin = 0
        elif params.at == "end" and request.max_tokens is not None:
            begin = max(0, request.max_tokens - len(ids))
        after_id = params.after_id
        if after_id is not None:
            checked((after_id,), self.env, "force")
        waiting = _Writing(ids, begin, marker, after_id, params.at == "end")
        return waiting.begun() if begin == 0 else waiting

    def _decide(self, logits: Tensor, rows: Rows) -> None:
        """Begin the text in each row where an end id has the largest logit, for texts `at: end`.

        Copies one flag of each such row from the device to the host.
        """
        seen = [*zip(rows.host_slots, rows.host_drafts, strict=True)]
        rows_waiting = [
            row for row, (slot, _) in enumerate(seen)
            if self._ends[slot] and self._replays[slot].after((), is_plain=True).is_held
        ]  # fmt: skip
        if not rows_waiting:
            return
        ends = [self._ends[seen[row][0]] for row in rows_waiting]
        width = max(map(len, ends))
        padded = [(*ids, *ids[-1:] * (width - len(ids))) for ids in ends]
        ids = graphs.upload(padded, logits.device, torch.int64)
        some = logits[graphs.upload(rows_waiting, logits.device)]
        best = some.amax(1)
        flags = ((some.gather(1, ids).amax(1) == best) & best.isfinite()).tolist()
        decided = zip([seen[row] for row in rows_waiting], flags, strict=True)
        for (slot, drafts), is_end in sorted(decided, key=lambda entry: len(entry[0][1])):
            plain = cast(_Writing, self._replays[slot].after(drafts, is_plain=True))
            self._replays[slot].decide(drafts, plain.begun() if is_end and plain.is_held else plain)


def _check_texts(params: Params, *names: str) -> None:
    for name in names:
        size = len(getattr(params, name).encode(errors="surrogatepass"))
        if size > TEXT_LIMIT:
            raise ParamError(f"{name} is {size} bytes, but the limit is {TEXT_LIMIT}.")


_State = Literal["outside", "counting", "waiting", "writing"]
_LONGEST = 3  # bytes of an incomplete UTF-8 character


@dataclass(frozen=True, slots=True, eq=False)
class _Thinking(Script):
    """State of the output: outside of reasoning, counting, waiting for a complete character, or writing.

    It waits once the budget is used, and writes the closing. Outside, a start tag begins a new count.

    `closing`: ids of the message and the end tag. `tail`: last output bytes, in which the next tag may begin.
    `cut`: bytes of an incomplete character at the end. `left`: tokens of the budget that are left. `written`:
    ids of the closing so far.
    """

    tokens: int
    start: Marker
    end: Marker
    closing: tuple[int, ...]
    state: _State = "outside"
    tail: bytes = b""
    cut: bytes = b""
    left: int = 0
    written: int = 0

    @property
    def ahead(self) -> tuple[int, ...]:
        return self.closing[self.written :] if self.state == "writing" else ()

    @property
    def is_held(self) -> bool:
        return self.state == "waiting"

    def opened(self) -> _Thinking:
        return replace(self._closed(), state="counting" if self.tokens else "writing", left=self.tokens)

    def _closed(self) -> _Thinking:
        return _Thinking(self.tokens, self.start, self.end, self.closing)

    def step(self, token: int) -> _Thinking:
        if self.state == "writing":
            written = self.written + 1
            return replace(self, written=written) if written < len(self.closing) else self._closed()
        tag = self.start if self.state == "outside" else self.end
        tail = tag.step(self.tail, token)
        if self.state == "outside":
            return self.opened() if tail is None else replace(self, tail=tail)
        if tail is None:
            return self._closed()
        token_bytes = tag.vocabulary.token_bytes
        cut = _cut(self.cut + (token_bytes[token] if token < len(token_bytes) else b""))
        left = max(0, self.left - 1)
        state: _State = "counting" if left else "waiting" if cut else "writing"
        return replace(self, state=state, tail=tail, cut=cut, left=left)


@parameters
class ReasoningBudgetParams(Params):
    """End the model's thinking after a number of tokens."""

    tokens: int | None = param(
        None, "Thinking has at most this many tokens, then its end is written.", ge=0, le=MOST
    )
    start: str = param("<think>", "The text, or special token, with which thinking begins.")
    end: str = param("</think>", "The text, or special token, that ends it.")
    open: bool = param(False, "The output begins inside thinking, unless the prompt ends with its end.")
    message: str = param("", "This text is written before the end, such as one that sums up.")

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        for name in ("start", "end"):
            if not getattr(self, name):
                raise ParamError(f"{name} is empty. Give the text that marks the {name} of thinking.")
        _check_texts(self, "start", "end", "message")


class ReasoningBudget(ScriptStage[ReasoningBudgetParams]):
    """Write the message and the end tag once `tokens` tokens have followed a start tag.

    Tags are found in any tokenization, or as one special token. The closing waits for a complete character. A
    prompt that ends with the start tag, white space aside, begins the count; with `open`, so does each prompt
    that does not end with the end tag. Each further start tag begins a new count. TokenError at admission: no
    tokenizer.
    """

    name = "reasoning_budget"
    Params = ReasoningBudgetParams
    about = Note(
        "x[i] = -inf for every i but the next id of message + end, once tokens have come behind start",
        "llama.cpp's reasoning budget: idle, counting, waiting for a whole character, forcing.",
        "reasoning_budget=512",
        "llama.cpp --reasoning-budget, vLLM thinking_token_budget; SGLang writes a newline first",
    )

    example_values = (
        {"tokens": 0, "start": "the", "end": " cat"},
        {"tokens": 1, "start": "a", "end": "b"},
        {"tokens": 2, "start": "the", "end": "</", "message": " sat\n"},
        {"tokens": 0, "start": "\n", "end": "é"},
        {"tokens": 2, "start": "é\n", "end": "aba", "message": "😀"},
        {"tokens": 10_000},
    )

    def script(self, params: ReasoningBudgetParams, request: Admission) -> Script:
        vocabulary = self.env.vocabulary
        if vocabulary is None:
            raise TokenError("reasoning_budget looks for texts, but there is no tokenizer.")
        start, end = Marker.of(params.start, vocabulary), Marker.of(params.end, vocabulary)
        closing = spelled(params.message + params.end, vocabulary, "reasoning_budget")
        script = _Thinking(params.tokens or 0, start, end, closing)
        is_begun = start.ends(request.prompt) or (params.open and not end.ends(request.prompt))
        return script.opened() if is_begun else script


def _cut(text: bytes) -> bytes:
    """Return the bytes of the incomplete UTF-8 character with which the text ends; b"" if there is none."""
    for size in range(1, min(_LONGEST, len(text)) + 1):
        first = text[-size]
        if first >= 0xC0:
            whole = 2 if first < 0xE0 else 3 if first < 0xF0 else 4
            return text[-size:] if size < whole else b""
        if first < 0x80:
            break
    return b""


_MAX_FACTOR = 1e200  # largest factor; its product with any float32 logit is finite in float64


class _Ending(IdStage[P]):
    """Base of stages that change the end-of-text logits.

    TokenError at admission for an id outside the vocabulary.
    """

    phase = Phase.ADJUST
    keeps_faults = True

    def listed(self, params: P, request: Admission) -> Iterable[int]:
        return checked(self.env.eos_ids, self.env, self.name)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        ids, filled = self.ids.gather(rows)
        old = logits.gather(1, ids).double()
        return edit(logits, ids, old, torch.where(filled, self._moved(old, rows), old))

    @abstractmethod
    def _moved(self, old: Tensor, rows: Rows) -> Tensor:
        """Return the new logits [A, N] float64 of the end-of-text ids."""


@parameters
class LengthDecayParams(Params):
    """Raise the logits of the end-of-text ids exponentially (transformers)."""

    decay: tuple[int, float] | None = param(
        None, "A start and a factor: behind this many output tokens, each raises the end of text by it.",
        ge=0, le=MOST, hint="[30, 1.05] starts after 30 tokens.",
    )  # fmt: skip

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        if self.decay is not None and not self.decay[1]:
            raise ParamError("decay has the factor 0, but it has to be above 0; 1.0 means off.", (1,))

    def is_off(self) -> bool:
        return self.decay is None or self.decay[1] == 1


class LengthDecay(_Ending[LengthDecayParams]):
    """x = x + |x| (factor^(n - start) - 1) for end-of-text ids once the output has n > start tokens."""

    name = "length_decay"
    Params = LengthDecayParams
    about = Note(
        "x[i] = x[i] + |x[i]| * (factor^(n - start) - 1) for every end-of-text id i, "
        "behind n > start output tokens",
        "transformers' ExponentialDecayLengthPenalty.",
        "length_decay=[30,1.05]",
        "transformers exponential_decay_length_penalty, the same",
    )

    example_values = ({"decay": (0, 1.1)}, {"decay": (2, 1e9)}, {"decay": (1, 0.5)})

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._decays = Lists(torch.float64, env.device)

    def admit(self, slot: int, params: LengthDecayParams, request: Admission) -> None:
        super().admit(slot, params, request)
        self._decays.write(slot, params.decay or (0, 1.0))

    def fork(self, source: int, target: int) -> None:
        super().fork(source, target)
        self._decays.copy(source, target)

    def _moved(self, old: Tensor, rows: Rows) -> Tensor:
        start, factor = self._decays.gather(rows)[0].T[:, :, None]
        steps = (rows.positions[:, None] - start).clamp_(min=0)
        return old + old.abs() * (torch.pow(factor, steps).clamp_(max=_MAX_FACTOR) - 1)


ENDS_LIMIT = 1024  # bytes of all texts after which a boost acts


@parameters
class LengthBoostParams(Params):
    """Add to the logits of the end-of-text ids by a power of the length (logits-processor-zoo)."""

    boost: float = param(
        0.0, "Added to the end of text after ten output tokens; below 0 makes it less likely, 0 is off."
    )
    power: float = param(2.0, "The boost grows with this power of the number of output tokens.", ge=0)
    after: tuple[str, ...] = param(
        (), 'Only where the text ends with one of these, as in [".", "\\n"]; an empty list is everywhere.'
    )

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        check_texts("after", self.after, ENDS_LIMIT)


class LengthBoost(_Ending[LengthBoostParams]):
    """x = x + boost * (n / 10)^power for end-of-text ids after n output tokens.

    With `after`, acts only where the bytes of prompt and output end with one of these texts. TokenError at
    admission: `after` without a tokenizer.
    """

    name = "length_boost"
    Params = LengthBoostParams
    about = Note(
        "x[i] = x[i] + boost * (n / 10)^power for every end-of-text id i after n output tokens",
        "GenLengthLogitsProcessor of NVIDIA's logits-processor-zoo.",
        'length_boost:boost=0.1,after=[".","\\n"]',
        "logits-processor-zoo boost_factor, p; complete_sentences is after, for "
        "tokens that are a full stop or a new line",
    )

    example_values = (
        {"boost": 1.5},
        {"boost": -1e90, "power": 0.5},
        {"boost": 2.0, "power": 0, "after": ("the", "ca", "a", "\n")},
    )

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self._texts: dict[int, tuple[bytes, ...]] = self.by_slot()
        self._tails: dict[int, bytes] = self.by_slot()  # last bytes, as many as the slot's longest text has

    def admit(self, slot: int, params: LengthBoostParams, request: Admission) -> None:
        """Store the texts, and the last bytes of the prompt."""
        super().admit(slot, params, request)
        if params.after and self.env.vocabulary is None:
            raise TokenError("length_boost has texts in the field after, but no tokenizer to read them.")
        self._texts[slot] = tuple(text.encode(errors="surrogatepass") for text in params.after)
        self._tails[slot] = self._longer(slot, b"", request.prompt if params.after else ())

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        if self._texts[slot]:
            self._tails[slot] = self._longer(slot, self._tails[slot], tokens)

    def _moved(self, old: Tensor, rows: Rows) -> Tensor:
        length = rows.positions[:, None].double() / 10
        power = self.columns.exact("power", rows)[:, None]
        boost = self.columns.exact("boost", rows)[:, None] * (length**power).clamp_(max=_MAX_FACTOR)
        if self.columns.known("after", rows) == {()}:
            return old + boost
        acts = [
            not self._texts[slot] or self._longer(slot, self._tails[slot], drafts).endswith(self._texts[slot])
            for slot, drafts in zip(rows.host_slots, rows.host_drafts, strict=True)
        ]
        return old + torch.where(graphs.upload(acts, old.device, torch.bool)[:, None], boost, 0)

    def _longer(self, slot: int, tail: bytes, tokens: Sequence[int]) -> bytes:
        if not tokens or self.env.vocabulary is None:
            return tail
        token_bytes, length = self.env.vocabulary.token_bytes, max(map(len, self._texts[slot]), default=0)
        return (tail + b"".join(token_bytes[token] for token in tokens if token < len(token_bytes)))[-length:]
