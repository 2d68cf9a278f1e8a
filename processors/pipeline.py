"""`Pipeline`: runs each row's chain over the logits of a step, in `_run` only, where the conditions of a
slot hold for the next token; and `trace`, which records the effect of each stage and
costs nothing when off.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from processors.base import Admission, Env, GrammarStatus, Noise, Processor, Vocabulary
from processors.chain import Chain, Key, Picks, Stage, check_conditions
from processors.errors import ChainError, ProcessorsError, RowError
from processors.foreign_stages import ForeignStage, explain_failure
from processors.graphs import upload
from processors.params import Params
from processors.registry import Registry, builtin_registry
from processors.request_values import JsonPaths, JsonState, Tags, When, ends_with
from processors.rows import Rows

Seen = Callable[[str, Tensor], None]  # called with the name of a stage and the logits [R, V] after it


@dataclass(frozen=True, slots=True)
class StageCall:
    """One stage and the indices of the rows where it is active; None means all rows.

    `looks_first`: search the rows for NaN and +inf before the stage runs, because it might mask them. `turn`:
    number of the stage's instance; a chain with several entries of a stage has one instance for each.
    """

    stage: str
    places: tuple[int, ...] | None
    looks_first: bool = False
    turn: int = 0

    @property
    def key(self) -> Key:
        return self.stage, self.turn

    def rows(self, count: int) -> Sequence[int]:
        """Return the indices of the active rows, of `count` rows."""
        return range(count) if self.places is None else self.places


Calls = tuple[StageCall, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """The calls of a step for the rows of some slots, and those whose stages override `prepare`.

    `plans`: what choosers have planned for it, each under a key of its own.
    """

    calls: Calls
    preparing: Calls
    plans: dict[Hashable, Any] = field(default_factory=dict)


class Pipeline:
    """The stages of all requests. Each stage is built once and runs only on the rows where it is on.

    A stage with several entries in a chain, by conditions, is built once for each entry, so that each
    instance has one set of values a slot. The entries that act in a row are known on the host before the
    forward pass. A plug-in stage runs behind a guard (foreign_stages). `notices` collects messages to
    users. `commits`: whether any stage or condition has to be told the committed tokens. `previews`: whether
    any slot has a grammar status to preview. `is_traced`: whether the effect of each stage is recorded, which
    forbids fusing stages.
    """

    def __init__(self, env: Env, registry: Registry | None = None) -> None:
        self.env = env
        self.registry = registry or builtin_registry()
        self._stages: dict[Key, Processor[Any]] = {}
        self._picks: dict[int, Picks] = {}  # by slot
        self._conditions: dict[int, _SlotConditions] = {}  # by slot, if any stage has a condition
        self._committing: dict[int, tuple[Processor[Any], ...]] = {}  # by slot, if any overrides `commit`
        self._previewing: dict[int, tuple[Processor[Any], ...]] = {}
        self.withholding: dict[int, Processor[Any]] = {}  # stages that hold tokens back, by slot
        self._programs: dict[tuple[Any, ...], Program] = {}
        self.commits = self.previews = self.is_traced = False
        self._forced_sequential: set[str] = set()
        self.notices: list[str] = []

    def admit(self, slot: int, chain: Chain, request: Admission) -> None:
        """Admit a request to the active stages of its chain. If one raises, none keeps the slot."""
        check_conditions(chain, self.registry)
        picks = Picks(chain, self.registry)
        if picks.whens:
            rules = _Rules(picks.whens, self.env.vocabulary)
            self._conditions[slot] = _SlotConditions(rules, rules.first(request.prompt))
        for index, key in enumerate(picks.keys):
            try:
                self.stage(*key).admit(slot, picks.stages[key][1], request)
            except ProcessorsError:
                for admitted in picks.keys[:index]:
                    self.stage(*admitted).release(slot)
                self._conditions.pop(slot, None)
                raise
        if not picks.whens:
            self._conditions.pop(slot, None)
        self._set_picks(slot, picks)

    def fork(self, source: int, target: int) -> None:
        """Make the target slot an independent copy of the source."""
        picks = self._picks[source]
        for key in picks.keys:
            self.stage(*key).fork(source, target)
        if picks.whens:
            conditions = self._conditions[source]
            self._conditions[target] = _SlotConditions(conditions.rules, conditions.state)
        self._set_picks(target, picks)

    def _set_picks(self, slot: int, picks: Picks) -> None:
        stages = [self.stage(*key) for key in picks.keys]
        self._picks[slot] = picks
        for hooks, name in ((self._committing, "commit"), (self._previewing, "preview")):
            hooks.pop(slot, None)
            base = getattr(Processor, name)
            if overriding := tuple([stage for stage in stages if getattr(type(stage), name) is not base]):
                hooks[slot] = overriding
        self.withholding.pop(slot, None)
        for stage in stages:
            if stage.withholds(slot):
                self.withholding[slot] = stage
        self._update()

    def release(self, slot: int) -> None:
        """Release the slot in its stages; its request has ended."""
        if slot in self._picks:
            for key in self._picks.pop(slot).keys:
                self.stage(*key).release(slot)
        self._conditions.pop(slot, None)
        for hooks in (self._committing, self._previewing, self.withholding):
            hooks.pop(slot, None)
        self._update()

    def _update(self) -> None:
        """Set what depends on all slots, after one of them has changed."""
        self._programs.clear()
        self.commits = bool(self._committing or self._conditions)
        self.previews = bool(self._previewing)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        """Advance the slot by tokens that were appended to the output."""
        for stage in self._committing.get(slot, ()):
            stage.commit(slot, tokens)
        if slot in self._conditions:
            self._conditions[slot].commit(tokens)

    def prepare(self, rows: Rows) -> Rows:
        """Run `prepare` of the stages before the forward pass. Return the rows with forced drafts marked."""
        for call in self.program(rows).preparing:
            active = rows if call.places is None else rows.select(call.places)
            forced = self.stage(*call.key).prepare(active)
            if forced is not None:
                rows = rows.with_forced(call.places, forced)
        return rows

    def preview(self, slot: int, tokens: Sequence[int]) -> tuple[GrammarStatus, ...]:
        """Return the grammar status after each of these tokens; () for a slot without a grammar."""
        for stage in self._previewing.get(slot, ()):
            if statuses := stage.preview(slot, tokens):
                return statuses
        return ()

    def predicted(self, slot: int, noise: Noise | None = None) -> tuple[tuple[int, float], ...]:
        """Return the first non-empty `Processor.predicted` among the slot's stages; () if there is none."""
        return next(filter(None, (stage.predicted(slot, noise) for stage in self._of_slot(slot))), ())

    def completion(self, slot: int, tokens: Sequence[int]) -> tuple[int, ...]:
        """Return the first non-empty `Processor.completion` among the slot's stages; () if there is none."""
        return next(filter(None, (stage.completion(slot, tokens) for stage in self._of_slot(slot))), ())

    def sequential(self, slot: int) -> str:
        """Return the name of a sequential stage in the slot's chain; "" if there is none.

        A slot with a sequential stage runs without draft tokens.
        """
        return next((name for name, _ in self._picks[slot].keys if self.runs_stepwise(name)), "")

    def runs_stepwise(self, name: str) -> bool:
        """Whether the stage is sequential, so that its slots run without draft tokens."""
        return name in self._forced_sequential or self.stage(name).sequential

    def _of_slot(self, slot: int) -> Iterator[Processor[Any]]:
        return (self.stage(*key) for key in self._picks[slot].keys)

    def values(self, slot: int, call: StageCall) -> Params:
        """Return the parameters of a stage call in a slot."""
        return self._picks[slot].stages[call.key][1]

    def left_out(self, slot: int, drafts: tuple[int, ...]) -> tuple[tuple[int, Stage, str], ...]:
        """Return the stages of a slot that conditions switch off after these drafts: see Picks.left_out."""
        if slot not in self._conditions:
            return ()
        return self._picks[slot].left_out(self._conditions[slot].hold(drafts))

    def may_fuse(self, name: str, names: Sequence[str]) -> bool:
        """Whether a stage is one of the built-in stages `names`."""
        return name in names and self.registry.is_builtin(name)

    def run_stepwise(self, name: str) -> None:
        """Treat this stage as sequential from now on, whatever its class declares."""
        self._forced_sequential.add(name)

    def stage(self, name: str, turn: int = 0) -> Processor[Any]:
        """Return the instance of a stage with this turn, built on first use."""
        if (name, turn) not in self._stages:
            cls, is_ours = self.registry.load(name), self.registry.is_builtin(name)
            stage = cls(self.env) if is_ours else ForeignStage(cls, self.env, self.notices)
            stage.notices = self.notices
            self._stages[name, turn] = stage
        return self._stages[name, turn]

    def __call__(self, logits: Tensor, rows: Rows, seen: Seen | None = None) -> Tensor:
        """Return processed logits [R, V] float32. The input is not changed; it is returned if no stage is on.

        A row with NaN or +inf in the input has one of them in the result, even if a stage masked that id.
        `seen(stage, logits)` is called after each stage.
        """
        return self.run(self.program(rows).calls, logits, rows, seen)

    def run(self, calls: Sequence[StageCall], logits: Tensor, rows: Rows, seen: Seen | None = None) -> Tensor:
        """Run only these calls of the rows' program; otherwise as `__call__`."""
        work, tops = logits.to(torch.float32, copy=bool(calls)), list[Tensor]()
        for call in calls:
            if call.looks_first:
                # amax propagates NaN; a fully masked row is not a fault
                tops.append(work.amax(dim=-1).clamp_(min=0))
            work = self._run(call, work, rows)
            if seen is not None:
                seen(call.stage, work)
        for top in tops:
            work[:, 0].sub_(top - top)  # subtracts 0, or NaN if the largest logit is not finite
        return work

    def _run(self, call: StageCall, logits: Tensor, rows: Rows) -> Tensor:
        """Apply the stage to its active rows and write them back. Tracing replaces this method."""
        if call.places is None:
            return self.stage(*call.key).apply(logits, rows)
        at = upload(call.places, logits.device)
        active = self.stage(*call.key).apply(logits.index_select(0, at), rows.select(call.places))
        return logits.index_copy_(0, at, active)

    def program(self, rows: Rows) -> Program:
        """Return the calls of a step. The object stays the same until a slot or a condition changes."""
        key: tuple[Any, ...] = rows.host_slots
        if self._conditions:  # which of them hold in each row
            pairs = zip(rows.host_slots, rows.host_drafts, strict=True)
            hold = [self._conditions[s].hold(drafts) if s in self._conditions else () for s, drafts in pairs]
            key = rows.host_slots, tuple(hold)
        program = self._programs.get(key)
        if program is None:
            if len(self._programs) > 64:
                self._programs.clear()
            calls = self._plan(rows)
            preparing = tuple(call for call in calls if self.stage(*call.key).prepares)
            program = self._programs[key] = Program(calls, preparing)
        return program

    def _plan(self, rows: Rows) -> Calls:
        """Plan the calls. Chains in default order share calls; each other order gets calls of its own."""
        default = self.registry.names()
        groups: dict[tuple[str, ...], list[int]] = {}
        turns = list[dict[str, int]]()  # by row: the turn of each stage that acts in the row
        for index, (slot, drafts) in enumerate(zip(rows.host_slots, rows.host_drafts, strict=True)):
            picks = self._picks[slot]
            ranks = [default.index(name) for name in picks.order]
            groups.setdefault(default if ranks == sorted(ranks) else picks.order, []).append(index)
            hold = self._conditions[slot].hold(drafts) if picks.whens else ()
            turns.append(dict(picks.where(hold)))
        calls, may_have_faults = [], True
        for order, places in groups.items():
            for name in order:
                active: dict[int, list[int]] = {}
                for index in places:
                    if name in turns[index]:
                        active.setdefault(turns[index][name], []).append(index)
                for turn, indices in sorted(active.items()):
                    looks = may_have_faults and not self.stage(name, turn).keeps_faults
                    acting = None if len(indices) == len(rows) else tuple(indices)
                    calls.append(StageCall(name, acting, looks, turn))
                    may_have_faults = (may_have_faults and not looks) or not self.registry.is_builtin(name)
        return tuple(calls)

    def explain_failure(self, logits: Tensor, rows: Rows, index: int) -> RowError:
        """Return why the row `index` failed: run it again alone and check the logits after each stage."""
        row = rows.select([index])
        keys = self._picks[row.host_slots[0]].keys
        return explain_failure(self.stage, self._plan(row), keys, logits[index : index + 1], row)


@dataclass(frozen=True, slots=True, eq=False)
class StageRecord:
    """Effect of one stage in one step, for the A rows where it was on.

    places: indices of these rows in the step. survivors_before/after [A]: number of unmasked ids.
    top_before/after [A]: the most likely id. mass_kept [A]: probability, before the stage, of the ids that
    the stage kept.
    """

    stage: str
    places: tuple[int, ...]
    survivors_before: Tensor
    survivors_after: Tensor
    top_before: Tensor
    top_after: Tensor
    mass_kept: Tensor


def trace(pipeline: Pipeline) -> tuple[list[StageRecord], Callable[[], None]]:
    """Record every stage call from now on. Return the growing list of records, and a function that stops."""
    records: list[StageRecord] = []
    plain = pipeline._run

    def traced(call: StageCall, logits: Tensor, rows: Rows) -> Tensor:
        before = logits.clone()
        after = plain(call, logits, rows)
        places = call.places or tuple(range(len(rows)))
        records.append(_record(call.stage, places, before[list(places)], after[list(places)]))
        return after

    def stop() -> None:
        del pipeline._run
        pipeline.is_traced = False

    setattr(pipeline, "_run", traced)  # noqa: B010 - an instance attribute over the method, on purpose
    pipeline.is_traced = True
    return records, stop


def _record(stage: str, places: tuple[int, ...], before: Tensor, after: Tensor) -> StageRecord:
    kept = after > -torch.inf
    return StageRecord(
        stage=stage,
        places=places,
        survivors_before=(before > -torch.inf).sum(-1),
        survivors_after=kept.sum(-1),
        top_before=before.argmax(-1),
        top_after=after.argmax(-1),
        mass_kept=torch.where(kept, before.softmax(-1), 0).sum(-1),
    )


class _State(NamedTuple):
    """Number of output tokens, and the states of the watches for tags, texts and JSON documents."""

    length: int
    tags: tuple[TagState, ...]
    afters: tuple[AfterState, ...]
    documents: tuple[JsonState, ...]


class _Rules:
    """The conditions of a request, and the watches that they need, each once."""

    def __init__(self, whens: Sequence[When], vocabulary: Vocabulary | None) -> None:
        self._whens = whens
        pairs = [pair for when in whens for pair in (when.inside, when.outside) if pair]
        self._pairs = tuple(dict.fromkeys(pairs))
        with_path = [when for when in whens if when.path is not None]
        texts = [when.after for when in whens if when.after or when.path is not None]
        self._texts = tuple(dict.fromkeys(texts))  # "" stands for a document that begins with the output
        self._paths = {
            text: tuple(dict.fromkeys(when.path for when in with_path if when.after == text))
            for text in dict.fromkeys(when.after for when in with_path)
        }
        self._tags, self._afters, self._documents = list[TagWatch](), list[AfterText](), list[JsonPaths]()
        if any(when.needs_text for when in whens):
            if vocabulary is None:
                raise ChainError("A condition of a stage is about the text, but there is no tokenizer.")
            spelling = TextSpelling(
                vocabulary, [*(tag for pair in self._pairs for tag in pair), *self._texts]
            )
            self._tags = [TagWatch(pair, spelling) for pair in self._pairs]
            self._afters = [AfterText(text, spelling) for text in self._texts]
            self._documents = [
                JsonPaths([p for p in paths if p is not None]) for paths in self._paths.values()
            ]

    def first(self, prompt: Sequence[int]) -> _State:
        """Return the state of an empty output."""
        return _State(
            0,
            tuple([watch.first(prompt) for watch in self._tags]),
            tuple([watch.first(prompt) for watch in self._afters]),
            tuple([watch.first() for watch in self._documents]),
        )

    def next(self, state: _State, token: int) -> _State:
        """Return the state after one more token."""
        tags = [watch.next(watched, token) for watch, watched in zip(self._tags, state.tags, strict=True)]
        afters = [
            watch.next(watched, token) for watch, watched in zip(self._afters, state.afters, strict=True)
        ]
        documents = list[JsonState]()
        for watch, text, watched in zip(self._documents, self._paths, state.documents, strict=True):
            begun = afters[self._texts.index(text)]
            documents.append(watch.next(watched, begun.rest) if begun.is_over else watched)
        return _State(state.length + 1, tuple(tags), tuple(afters), tuple(documents))

    def hold(self, state: _State) -> tuple[bool, ...]:
        """Return for each condition whether it holds for the next token."""
        return tuple([self._holds(when, state) for when in self._whens])

    def _holds(self, when: When, state: _State) -> bool:
        if state.length < when.begin or (when.end is not None and state.length >= when.end):
            return False
        if when.inside and not self._is_inside(when.inside, state):
            return False
        if when.outside and self._is_inside(when.outside, state):
            return False
        if when.path is None:
            return not when.after or state.afters[self._texts.index(when.after)].is_over
        begun = state.afters[self._texts.index(when.after)]
        number = list(self._paths).index(when.after)
        path_index = self._paths[when.after].index(when.path)
        return begun.is_over and self._documents[number].holds(state.documents[number], path_index)

    def _is_inside(self, tags: Tags, state: _State) -> bool:
        return state.tags[self._pairs.index(tags)].is_inside


class _SlotConditions:
    """The conditions of a slot, and cached states after the drafts requested since the last commit."""

    def __init__(self, rules: _Rules, state: _State) -> None:
        self.rules = rules
        self.begin(state)

    def begin(self, state: _State) -> None:
        self.state = state
        self._after: dict[tuple[int, ...], tuple[_State, tuple[bool, ...]]] = {}

    def hold(self, drafts: tuple[int, ...]) -> tuple[bool, ...]:
        """Return for each condition whether it holds for the token after these drafts."""
        return self._reached(drafts)[1]

    def commit(self, tokens: Sequence[int]) -> None:
        drafts = tuple(tokens[:-1])  # the rows of the step have often computed these states already
        state = self._reached(drafts)[0] if tokens else self.state
        self.begin(self.rules.next(state, tokens[-1]) if tokens else state)

    def _reached(self, drafts: tuple[int, ...]) -> tuple[_State, tuple[bool, ...]]:
        if drafts not in self._after:
            size, state = len(drafts), self.state
            while size and drafts[: size - 1] not in self._after:
                size -= 1
            if size:
                state, size = self._after[drafts[: size - 1]][0], size - 1
            for end in range(size, len(drafts)):
                state = self.rules.next(state, drafts[end])
            self._after[drafts] = state, self.rules.hold(state)
        return self._after[drafts]


class TextSpelling:
    """The bytes of each token; a special token has the bytes of its text, so that it can be a tag."""

    def __init__(self, vocabulary: Vocabulary, tags: Iterable[str]) -> None:
        self._bytes = vocabulary.token_bytes
        self._special = dict[int, bytes]()
        for tag in filter(None, tags):
            ids = vocabulary.encode(tag, special=False)
            if len(ids) == 1 and not self.of(ids[0]):
                self._special[ids[0]] = tag.encode()

    def of(self, token: int) -> bytes:
        """Return the bytes of a token; b"" for an id that the tokenizer lacks."""
        if data := self._special.get(token):
            return data
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""

    def ends(self, prompt: Sequence[int], text: bytes) -> bool:
        return ends_with(prompt, text, self.of)


class TagState(NamedTuple):
    """Whether the output is between the tags, and its last bytes, in which the next tag may begin."""

    is_inside: bool
    end: bytes = b""


class TagWatch:
    """Whether an output is between a start tag and the next end tag; tags may repeat.

    The state changes after a tag's last token. With an empty start tag the output begins inside, once,
    unless the prompt ends with the end tag.
    """

    def __init__(self, tags: Tags, spelling: TextSpelling) -> None:
        self._start, self._end = (tag.encode() for tag in tags)
        self._spelling = spelling
        self._kept = max(len(self._start), len(self._end)) - 1

    def first(self, prompt: Sequence[int]) -> TagState:
        """Return the state of an empty output: inside if the last tag in the prompt is a start tag."""
        if not self._start:
            return TagState(not self._spelling.ends(prompt, self._end))
        text = b"".join(map(self._spelling.of, prompt))
        start, end = text.rfind(self._start), text.rfind(self._end)
        return TagState(start > end)

    def next(self, state: TagState, token: int) -> TagState:
        """Return the state after one more token."""
        is_inside, text = state.is_inside, state.end + self._spelling.of(token)
        while tag := self._end if is_inside else self._start:
            at = text.find(tag)
            if at < 0:
                break
            is_inside, text = not is_inside, text[at + len(tag) :]
        return TagState(is_inside, _end_of(text, self._kept))


class AfterState(NamedTuple):
    """Whether the text has occurred; `rest`: last bytes of the output, or the bytes after the text."""

    is_over: bool
    rest: bytes = b""


class AfterText:
    """Whether a text has occurred in an output."""

    def __init__(self, text: str, spelling: TextSpelling) -> None:
        self._text, self._spelling = text.encode(), spelling

    def first(self, prompt: Sequence[int]) -> AfterState:
        """Return the state of an empty output; a prompt that ends with the text counts as well."""
        return AfterState(self._spelling.ends(prompt, self._text))

    def next(self, state: AfterState, token: int) -> AfterState:
        """Return the state after one more token. `rest`: the bytes that the token adds after the text."""
        piece = self._spelling.of(token)
        if state.is_over:
            return AfterState(True, piece)
        text = state.rest + piece
        at = text.find(self._text)
        if at < 0:
            return AfterState(False, _end_of(text, len(self._text) - 1))
        return AfterState(True, text[at + len(self._text) :])


def _end_of(text: bytes, count: int) -> bytes:
    return text[len(text) - count :] if 0 < count < len(text) else text if count else b""
