"""The contract of stages, one check per promise: a check raises AssertionError with what it observed.

`Bench` is a stage under test with requests and logits; `shrink` makes a failing case smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from processors.base import Admission, Env, Processor, Vocabulary
from processors.chain import Chain
from processors.errors import raised_in
from processors.foreign_stages import WrongResult, checked_logits, is_interrupt
from processors.history import History
from processors.params import Params
from processors.pipeline import Pipeline
from processors.registry import Registry
from processors.rows import Rows
from processors.testing.examples import ToyVocabulary, examples


def toy_env() -> Env:
    """Return the toy vocabulary with a model of five more ids."""
    vocabulary = ToyVocabulary()
    return Env(vocabulary.vocab_size + 5, vocabulary, vocabulary.eos_ids)


SEED = 0  # seed of all requests, so that a random number is the same alone, in a batch and in a fork


@dataclass(frozen=True, slots=True)
class View:
    """One row: prompt, output with the visible drafts, stop and end-of-text ids, vocabulary, seed.

    `earlier`: the rows of this step that saw fewer drafts, each with its logits and the draft after it.
    """

    prompt: tuple[int, ...] = ()
    output: tuple[int, ...] = ()
    stop_ids: tuple[int, ...] = ()
    eos_ids: tuple[int, ...] = ()
    vocabulary: Vocabulary | None = None
    seed: int = 0
    earlier: tuple[tuple[list[float], int], ...] = ()

    def token_id(self, key: int | str) -> int:
        """Return the id of a key: an id, or a text of one token."""
        if isinstance(key, int):
            return key
        assert self.vocabulary is not None
        (token,) = self.vocabulary.encode(key, special=False)
        return token

    def text(self, tokens: Iterable[int]) -> bytes:
        assert self.vocabulary is not None
        token_bytes = self.vocabulary.token_bytes
        return b"".join(token_bytes[token] for token in tokens if token < len(token_bytes))


Twin = Callable[[list[float], Any, View], list[float]]  # of a row's logits, parameters and view


@dataclass(frozen=True, slots=True)
class Text:
    """A request in progress: prompt, output so far, stop ids, up to three drafts."""

    prompt: tuple[int, ...]
    output: tuple[int, ...]
    drafts: tuple[int, ...]
    stop_ids: tuple[int, ...] = ()

    @property
    def admission(self) -> Admission:
        return Admission(self.prompt, self.stop_ids)

    def view(self, env: Env, num_drafts: int) -> View:
        """Return the twin's view of the row that sees `num_drafts` drafts."""
        output = self.output + self.drafts[:num_drafts]
        return View(self.prompt, output, self.stop_ids, env.eos_ids, env.vocabulary, seed=SEED)


def _text(prompt: str, output: str, drafts: str, *stop_ids: int) -> Text:
    encode = ToyVocabulary().encode
    return Text(
        tuple(encode(prompt)),
        tuple(encode(output, special=False)),
        tuple(encode(drafts, special=False)[:3]),
        stop_ids,
    )


TEXTS: tuple[Text, ...] = (
    _text("the cat", " sat. the cat the", " ca😀", 9),
    _text("abab ab", "a", "bab"),
    _text("say 😀é\n", "", "\n\né", 5, 1),
    Text((), (), (12, 12, 30)),
    Text((0, 2, 3, 1), (2, 7, 7, 7, 1, 0), (1, 7, 2), (7,)),
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A stage under test, parameters that switch it on, and its twin if it has one."""

    stage: type[Processor[Any]]
    params: tuple[Params, ...]
    env: Env = field(default_factory=toy_env)
    twin: Twin | None = None
    texts: tuple[Text, ...] = TEXTS

    @classmethod
    def of(cls, stage: type[Processor[Any]], params: Sequence[Params] = (), **others: Any) -> Subject:
        """Build a subject; without `params`, examples are guessed."""
        return cls(stage, tuple(params) or examples(stage.Params), **others)

    @property
    def commits(self) -> bool:
        """Whether the stage overrides `commit`."""
        return self.stage.commit is not Processor.commit

    def cases(self) -> list[tuple[Params, Text]]:
        """Pair the parameters with the texts so that each occurs at least once."""
        count = max(len(self.params), len(self.texts))
        return [(self.params[i % len(self.params)], self.texts[i % len(self.texts)]) for i in range(count)]


class Bench:
    """Admits requests and applies the stage to rows, as a pipeline does, without a guard."""

    def __init__(self, subject: Subject) -> None:
        self.stage = subject.stage(subject.env)
        self.history = History(subject.env.device, slots=2, length=4)

    def admit(self, slot: int, params: Params, text: Text) -> None:
        """Admit a request to the slot and commit its output so far."""
        self.history.admit(slot, text.prompt, seed=SEED)
        self.stage.admit(slot, params, text.admission)
        self.commit(slot, text.output)

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        self.history.append([slot], [tokens])
        self.stage.commit(slot, tokens)

    def fork(self, source: int, target: int) -> None:
        self.history.fork(source, target, seed=SEED)
        self.stage.fork(source, target)

    def release(self, slot: int) -> None:
        self.history.release(slot)
        self.stage.release(slot)

    def apply(self, logits: Tensor, slots: Sequence[int], drafts: Sequence[Sequence[int]] = ()) -> Tensor:
        """Return processed logits of the rows of these slots; the input is not changed.

        Raises WrongResult for an invalid result. Other floating-point types are cast, as in a run.
        """
        return checked_logits(self.raw(logits, slots, drafts), logits)

    def raw(self, logits: Tensor, slots: Sequence[int], drafts: Sequence[Sequence[int]] = ()) -> object:
        """Return the unchecked result of the stage for the rows of these slots."""
        return self.stage.apply(logits.clone(), Rows.build(self.history, slots, drafts))


def random_logits(rows: int, env: Env, *, seed: int = 0, masked: bool = False) -> Tensor:
    """Return logits [rows, V]: in turn plain, with ties, with wide gaps; `masked` masks 30 % of them."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(rows, env.vocab_size, generator=generator)
    logits[1::3] = logits[1::3].round()
    logits[2::3] *= 30
    if masked:
        logits[torch.rand(rows, env.vocab_size, generator=generator) < 0.3] = -math.inf
    return logits.to(env.device)


Check = Callable[[Subject], None]
_SPREAD = 7  # distance between used slots, so that tensors indexed by slot have to grow


def returns_logits(subject: Subject) -> None:
    """apply returns logits [A, V] float32 on the device of those it got."""
    cases = subject.cases()
    for some in (cases[:1], cases):
        logits = random_logits(len(some), subject.env)
        checked_logits(_batch(subject, some).raw(logits, _slots(some)), logits, is_strict=True)


def defaults_never_run(subject: Subject) -> None:
    """Rows with default values come out bit for bit as they went in, beside rows where the stage is on."""
    default = subject.stage.Params()
    _require(default.is_off(), f"{default} is not off.")
    logits = random_logits(2, subject.env)
    out = _piped(subject, [default, subject.params[0]], logits)
    _same(out[:1], logits[:1], "A row with default values was changed.")


def rows_commute(subject: Subject) -> None:
    """Permuting the rows permutes the result."""
    cases = subject.cases()
    order = [*range(1, len(cases), 2), *range(0, len(cases), 2)][::-1]
    logits = random_logits(len(cases), subject.env, masked=True)
    straight = _batch(subject, cases).apply(logits, _slots(cases))
    mixed = _batch(subject, cases).apply(logits[order], [_slots(cases)[i] for i in order])
    _same(mixed, straight[order], "The result depends on the order of the rows.")


def batch_equals_alone(subject: Subject) -> None:
    """A row in a batch has the same result as alone, to the last bit."""
    cases = subject.cases()
    logits = random_logits(len(cases), subject.env, masked=True)
    together = _batch(subject, cases).apply(logits, _slots(cases))
    for i, case in enumerate(cases):
        alone = _batch(subject, [case]).apply(logits[i : i + 1], [0])
        _same(together[i : i + 1], alone, f"Alone and in a batch differ for {case[0]}.")


def drafts_equal_steps(subject: Subject) -> None:
    """K + 1 rows with K drafts equal K + 1 steps with those tokens committed."""
    if subject.stage.sequential:
        return  # a sequential stage never gets drafts
    for params, text in subject.cases():
        logits = random_logits(len(text.drafts) + 1, subject.env, masked=True)
        at_once = _batch(subject, [(params, text)]).apply(logits, [0], [text.drafts])
        for step in range(len(text.drafts) + 1):
            bench = _batch(subject, [(params, text)])
            for i, token in enumerate(text.drafts[:step]):
                if subject.commits:  # the stage may use values computed for the row of this token
                    bench.apply(logits[i : i + 1], [0])
                bench.commit(0, [token])
            single = bench.apply(logits[step : step + 1], [0])
            _same(at_once[step : step + 1], single, f"Row {step} of a draft is not step {step} for {params}.")


def apply_is_pure(subject: Subject) -> None:
    """Applying again gives the same result, whatever was applied in between; the history is only read."""
    cases = subject.cases()
    bench, slots = _batch(subject, cases), _slots(cases)
    tokens, lengths = bench.history.tokens.clone(), bench.history.lengths.clone()
    logits = random_logits(len(cases), subject.env, masked=True)
    first = bench.apply(logits, slots)
    bench.apply(random_logits(len(cases), subject.env, seed=1), slots)
    _same(bench.apply(logits, slots), first, "A second apply with the same logits gave something else.")
    read_only = torch.equal(bench.history.tokens, tokens) and torch.equal(bench.history.lengths, lengths)
    _require(read_only, "apply wrote to the history.")


def masked_stays_masked(subject: Subject) -> None:
    """A logit of -inf stays -inf."""
    cases = subject.cases()
    logits = random_logits(len(cases), subject.env, masked=True)
    out = _batch(subject, cases).apply(logits, _slots(cases))
    revived = (logits == -math.inf) & (out != -math.inf)
    _require(not revived.any(), f"{int(revived.sum())} masked tokens came back.")


def leaves_a_choice(subject: Subject) -> None:
    """Logits without masks, equal ones included, keep at least one token and get no NaN or +inf."""
    for params, text in subject.cases():
        logits = random_logits(4, subject.env)
        logits[3] = 1.5
        for row in logits:
            out = _batch(subject, [(params, text)]).apply(row[None], [0])
            _require(not out.isnan().any(), f"NaN came out for {params}.")
            top = float(out.max())
            _require(-math.inf < top < math.inf, f"The largest logit is {top} for {params}.")


def admit_overwrites(subject: Subject) -> None:
    """Admission to a slot that was not released leaves no state of the earlier request."""
    for (old, old_text), (new, new_text) in _pairs(subject.cases()):
        logits = random_logits(1, subject.env)
        bench = _batch(subject, [(old, old_text)])
        bench.admit(0, new, new_text)
        fresh = _batch(subject, [(new, new_text)])
        _same(bench.apply(logits, [0]), fresh.apply(logits, [0]), f"{old} was still there after {new} came.")


def release_frees(subject: Subject) -> None:
    """A release does not change other slots, and the slot then behaves like an unused one."""
    for (gone, gone_text), (stays, stays_text) in _pairs(subject.cases()):
        logits = random_logits(1, subject.env)
        alone = _batch(subject, [(stays, stays_text)]).apply(logits, [0])
        for readmit in (False, True):
            bench = _batch(subject, [(gone, gone_text), (stays, stays_text)])
            bench.release(0)
            if readmit:
                bench.admit(0, stays, stays_text)
                _same(bench.apply(logits, [0]), alone, "A slot that was released is not as new.")
            else:
                _same(bench.apply(logits, [_SPREAD]), alone, "A release of one slot changed another.")


def fork_is_independent(subject: Subject) -> None:
    """A fork behaves like its source, and later events of one do not change the other."""
    fork = 3 * _SPREAD
    for (params, text), (other, other_text) in _pairs(subject.cases()):
        logits = random_logits(1, subject.env)
        plain = _batch(subject, [(params, text)]).apply(logits, [0])
        events: tuple[tuple[str, int, Callable[..., None], tuple[Any, ...]], ...] = (
            ("an empty commit to the fork", fork, Bench.commit, (fork, ())),
            ("a commit to the source", fork, Bench.commit, (0, text.drafts)),
            ("a commit to the fork", 0, Bench.commit, (fork, text.drafts)),
            ("an admission to the source", fork, Bench.admit, (0, other, other_text)),
            ("an admission to the fork", 0, Bench.admit, (fork, other, other_text)),
            ("a release of the fork", 0, Bench.release, (fork,)),
        )
        for label, slot, event, arguments in events:
            bench = _batch(subject, [(params, text)])
            bench.fork(0, fork)
            event(bench, *arguments)
            _same(bench.apply(logits, [slot]), plain, f"After a fork, {label} shows in slot {slot}.")


def equals_twin(subject: Subject) -> None:
    """All rows equal those of the twin within 1e-6, ties included; passes without a twin."""
    if subject.twin is None:
        return
    for seed, params in enumerate(subject.params):
        for text in TEXTS:
            logits = random_logits(len(text.drafts) + 1, subject.env, seed=seed, masked=seed % 2 == 1)
            out = _batch(subject, [(params, text)]).apply(logits, [0], [text.drafts])
            rows = logits.tolist()
            for i, row in enumerate(rows):
                earlier = tuple(zip(rows[:i], text.drafts, strict=False))
                view = replace(text.view(subject.env, i), earlier=earlier)
                expected = subject.twin(row, params, view)
                _close(out[i], expected, f"Row {i} differs from the twin for {params}.")


def bf16_equals_float32(subject: Subject) -> None:
    """bfloat16 logits have the same result as the same numbers in float32."""
    logits = random_logits(len(subject.params), subject.env).bfloat16()
    half = _piped(subject, subject.params, logits)
    _same(half, _piped(subject, subject.params, logits.float()), "The result depends on the input's type.")


CHECKS: tuple[Check, ...] = (
    returns_logits,
    defaults_never_run,
    rows_commute,
    batch_equals_alone,
    drafts_equal_steps,
    apply_is_pure,
    masked_stays_masked,
    leaves_a_choice,
    admit_overwrites,
    release_frees,
    fork_is_independent,
    equals_twin,
    bf16_equals_float32,
)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check; `detail` is the failure, "" if it passed; `error` is the exception behind it."""

    name: str
    passed: bool
    detail: str = ""
    error: BaseException | None = None


def run_check(check: Check, subject: Subject) -> CheckResult:
    """Run one check. Any exception of the stage, SystemExit included, is a failure."""
    try:
        check(subject)
    except BaseException as error:
        if is_interrupt(error):
            raise
        name = "" if isinstance(error, WrongResult) else f"{type(error).__name__}: "
        return CheckResult(check.__name__, False, f"{name}{error}{raised_in(error)}", error)
    return CheckResult(check.__name__, True)


def check_stage(
    stage: type[Processor[Any]],
    *,
    params: Sequence[Params] = (),
    env: Env | None = None,
    twin: Twin | None = None,
) -> list[CheckResult]:
    """Run every check on a stage. Without `params`, examples are guessed from the fields and their bounds."""
    subject = Subject.of(stage, params, env=env or toy_env(), twin=twin)
    return [run_check(check, subject) for check in CHECKS]


def _require(condition: bool | Tensor, message: str) -> None:
    if not condition:  # no assert: the checks also have to work under python -O
        raise AssertionError(message)


def _batch(subject: Subject, cases: Sequence[tuple[Params, Text]]) -> Bench:
    bench = Bench(subject)
    for slot, (params, text) in zip(_slots(cases), cases, strict=True):
        bench.admit(slot, params, text)
    return bench


def _slots(cases: Sequence[tuple[Params, Text]]) -> range:
    return range(0, _SPREAD * len(cases), _SPREAD)


def _pairs(cases: list[tuple[Params, Text]]) -> list[tuple[tuple[Params, Text], tuple[Params, Text]]]:
    """Return each case with the next one, cyclically."""
    return list(zip(cases, [*cases[1:], cases[0]], strict=True))


def _piped(subject: Subject, params: Sequence[Params], logits: Tensor) -> Tensor:
    registry = Registry()
    registry.register(subject.stage)
    pipeline, history = Pipeline(subject.env, registry), History(subject.env.device)
    for slot, values in enumerate(params):
        history.admit(slot, TEXTS[0].prompt)
        pipeline.admit(slot, Chain(((subject.stage.name, values),)), Admission(TEXTS[0].prompt))
    return pipeline(logits, Rows.build(history, range(len(params))))


def _same(left: Tensor, right: Tensor, message: str) -> None:
    _require(torch.equal(left.view(torch.int32), right.view(torch.int32)), message)  # NaN equals itself


def _close(out: Tensor, expected: list[float], message: str) -> None:
    for token, (have, want) in enumerate(zip(out.tolist(), expected, strict=True)):
        near = math.isclose(have, want, rel_tol=1e-6, abs_tol=1e-6)
        _require(near, f"{message} Token {token} is {have}, not {want}.")


_TRIES = 200


def shrink(check: Check, subject: Subject) -> Subject:
    """Return the subject, reduced step by step while the check fails with the same kind of exception."""
    kind = _failure(check, subject)
    tries = 0
    candidates = _smaller(subject)
    while tries < _TRIES and (candidate := next(candidates, None)) is not None:
        tries += 1
        if _failure(check, candidate) == kind:
            subject, candidates = candidate, _smaller(candidate)
    return subject


def _failure(check: Check, subject: Subject) -> str:
    return run_check(check, subject).detail.partition(":")[0]


def _smaller(subject: Subject) -> Iterator[Subject]:
    """Yield all subjects one step smaller, the largest steps first."""
    if len(subject.params) > 1:
        yield from (replace(subject, params=(params,)) for params in subject.params)
        for i in range(len(subject.params)):
            yield replace(subject, params=subject.params[:i] + subject.params[i + 1 :])
    if len(subject.texts) > 1:
        yield from (replace(subject, texts=(text,)) for text in subject.texts)
        for i in range(len(subject.texts)):
            yield replace(subject, texts=subject.texts[:i] + subject.texts[i + 1 :])
    for i, text in enumerate(subject.texts):
        for shorter in _shorter(text):
            yield replace(subject, texts=(*subject.texts[:i], shorter, *subject.texts[i + 1 :]))


def _shorter(text: Text) -> Iterator[Text]:
    for name in ("prompt", "output", "drafts", "stop_ids"):
        ids = getattr(text, name)
        if ids:
            yield from (replace(text, **{name: cut}) for cut in ((), ids[: len(ids) // 2], ids[1:], ids[:-1]))
