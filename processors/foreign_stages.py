"""A guard around plug-in stages: their exceptions and invalid results fail only the rows concerned; and
reasons why no token can be chosen for a row.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from torch import Tensor

from processors.base import Admission, Columns, Env, GrammarStatus, Noise, Processor
from processors.chain import Key
from processors.errors import (
    EmptySupport,
    NonFiniteLogits,
    ProcessorsError,
    RowError,
    StageFailure,
    device_fault,
    is_out_of_memory,
    raised_in,
)
from processors.rows import Rows

if TYPE_CHECKING:
    from processors.pipeline import StageCall


T = TypeVar("T")
_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)


class WrongResult(TypeError):
    """A call returned an invalid result; the message has the result and what was expected."""


@dataclass(frozen=True, slots=True)
class StageFault:
    """Description of a stage's failure, and the exception behind it."""

    text: str
    cause: BaseException


def is_interrupt(error: BaseException) -> bool:
    """Whether the error is Ctrl-C, raised by Python's own signal handler.

    Under another handler a KeyboardInterrupt was raised by the called code itself.
    """
    return isinstance(error, KeyboardInterrupt) and (
        signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )


def _ends_step(error: BaseException) -> bool:
    """Whether an error concerns all rows: Ctrl-C, PyTorch without memory, or a GPU that has failed."""
    is_full = isinstance(error, RuntimeError) and is_out_of_memory(error)
    return is_interrupt(error) or is_full or bool(device_fault(error))


def checked_logits(out: object, logits: Tensor, *, is_strict: bool = False) -> Tensor:
    """Return the result of `apply` as logits [A, V] float32; WrongResult if it cannot be converted.

    Other floating-point types are cast, unless `is_strict`. The returned tensor is contiguous.
    """

    def refused(seen: object, expected: object) -> WrongResult:
        return WrongResult(f"apply returned {seen}, {expected} expected")

    if not isinstance(out, Tensor):
        seen = "None (is its return missing?)" if out is None else f"a {type(out).__name__}"
        raise refused(seen, f"a tensor {list(logits.shape)}")
    if out.layout is not torch.strided:
        raise refused(f"a {_word(out.layout)} tensor", "a dense one")
    if out.dtype not in (_FLOATS[:1] if is_strict else _FLOATS):
        raise refused(_word(out.dtype), _word(torch.float32))
    if out.shape != logits.shape:
        raise refused(list(out.shape), list(logits.shape))
    if out.device != logits.device:
        raise refused(f"a tensor on {out.device}", logits.device)
    return out.detach().to(torch.float32).contiguous()


def _word(kind: torch.dtype | torch.layout) -> str:
    return str(kind).removeprefix("torch.")


class ForeignStage(Processor[Any]):
    """Wraps a plug-in stage so that its methods raise nothing but Ctrl-C.

    A failure in `apply` turns the failing rows into NaN. A failure in a hook is kept as the slot's fault, and
    `apply` returns NaN for the slot from then on; `fault` returns the reason. Only `admit` raises:
    StageFailure, or the ProcessorsError of a stage that refuses its parameters. `notices` receives problems
    that fail no row, each once.
    """

    remembers = True

    def __init__(self, stage: type[Processor[Any]], env: Env, notices: list[str]) -> None:
        self.name, self.phase, self.Params = stage.name, stage.phase, stage.Params  # type: ignore[misc]
        self._inner = self._guarded("__init__", 0, lambda: _built(stage, env))
        self.env, self._width = env, env.vocab_size
        self.sequential = self._guarded("sequential", 0, lambda: bool(self._inner.sequential))  # type: ignore[misc]
        self._notices = notices
        self._noticed: set[str] = set()
        self._faults: dict[int, StageFault] = {}  # failures of hooks, by slot
        self._last: dict[int, StageFault] = {}  # failures of the last apply, by slot

    @property
    def prepares(self) -> bool:
        return self._inner.prepares

    def fault(self, slot: int) -> StageFault | None:
        """Return why the slot's rows failed; None if they did not."""
        return self._faults.get(slot) or self._last.get(slot)

    def admit(self, slot: int, params: Any, request: Admission) -> None:
        self._forget(slot)
        self._guarded("admit", slot, lambda: self._inner.admit(slot, params, request))

    def commit(self, slot: int, tokens: Sequence[int]) -> None:
        self._hook("commit", slot, lambda: self._inner.commit(slot, tokens), None)

    def release(self, slot: int) -> None:
        """Release the slot. Its output has ended, so a failure becomes a notice."""
        self._forget(slot)
        self._hook("release", slot, lambda: self._inner.release(slot), None)
        if fault := self._faults.pop(slot, None):
            self._notice(f"The stage {self.name} is wrong: {fault.text}, when a text had ended.")

    def fork(self, source: int, target: int) -> None:
        """Copy a slot, its fault included."""
        self._forget(target)
        if source in self._faults:
            self._faults[target] = self._faults[source]
        else:
            self._hook("fork", target, lambda: self._inner.fork(source, target), None)

    def preview(self, slot: int, tokens: Sequence[int]) -> tuple[GrammarStatus, ...]:
        def is_status(item: Any) -> bool:
            return isinstance(item, GrammarStatus)

        return self._tuple("preview", slot, tokens, "GrammarStatus", is_status, len(tokens))

    def predicted(self, slot: int, noise: Noise | None) -> tuple[tuple[int, float], ...]:
        def is_pair(item: Any) -> bool:
            return isinstance(item, tuple) and len(item) == 2 and self._is_id(item[0])

        return self._tuple("predicted", slot, noise, "(id, probability)", is_pair)

    def completion(self, slot: int, tokens: Sequence[int]) -> tuple[int, ...]:
        return self._tuple("completion", slot, tokens, "ids", self._is_id)

    def failure_reason(self, slot: int, drafts: Sequence[int]) -> str:
        reason = self._hook("failure_reason", slot, lambda: self._inner.failure_reason(slot, drafts), "")
        return str(reason or "")

    def prepare(self, rows: Rows) -> Tensor | None:
        """Prepare all rows at once; if that fails, each row alone."""
        try:
            return self._prepared(rows)
        except BaseException as error:
            if _ends_step(error):
                raise
        flags = torch.zeros_like(rows.drafts, dtype=torch.bool)
        for index, slot in enumerate(rows.host_slots):
            row = rows.select([index])
            forced = self._hook("prepare", slot, lambda row=row: self._prepared(row), None)  # type: ignore[misc]
            if forced is not None:
                flags[index] = forced[0]
        return flags

    def _prepared(self, rows: Rows) -> Tensor | None:
        flags: object = self._inner.prepare(rows)
        if flags is None:
            return None
        shape = rows.drafts.shape
        if not isinstance(flags, Tensor) or flags.dtype != torch.bool or flags.shape != shape:
            seen = f"{_word(flags.dtype)} {list(flags.shape)}" if isinstance(flags, Tensor) else repr(flags)
            raise WrongResult(f"prepare returned {seen:.60}, None or bool {list(shape)} expected")
        return flags.to(rows.drafts.device)

    def apply(self, logits: Tensor, rows: Rows) -> Tensor:
        """Return logits [A, V] float32, NaN in failed rows. The input is not changed."""
        if any(slot in self._faults for slot in rows.host_slots):
            return self._apply_alone(logits, rows)[0]
        try:
            return self._applied(logits, rows)
        except BaseException as error:
            if _ends_step(error):
                raise
            together = fault_text("apply", error)
        out, num_failed = self._apply_alone(logits, rows)
        if not num_failed:
            self._notice(
                f"The stage {self.name} is wrong: {together}, but gave an answer when it was called again, "
                "for each row alone. The run goes on with that."
            )
        return out

    def _applied(self, logits: Tensor, rows: Rows) -> Tensor:
        edited = checked_logits(self._inner.apply(logits.clone(), rows), logits)
        return edited.masked_fill(logits == -torch.inf, -torch.inf)

    def _apply_alone(self, logits: Tensor, rows: Rows) -> tuple[Tensor, int]:
        """Apply the stage row by row. Return logits with NaN in failed rows, and the number of these rows."""
        out, num_failed = torch.full_like(logits, torch.nan), 0
        for index, slot in enumerate(rows.host_slots):
            if slot in self._faults:
                continue
            try:
                out[index] = self._applied(logits[index : index + 1], rows.select([index]))[0]
            except BaseException as error:
                if _ends_step(error):
                    raise
                self._last[slot] = StageFault(fault_text("apply", error), error)
                num_failed += 1
        return out, num_failed

    def _hook(self, hook: str, slot: int, call: Callable[[], T], otherwise: T) -> T:
        """Return the call's result; on failure, record the slot's fault and return `otherwise`."""
        if slot in self._faults:
            return otherwise
        try:
            return call()
        except BaseException as error:
            if is_interrupt(error) or device_fault(error):
                raise
            self._faults[slot] = StageFault(fault_text(hook, error), error)
            return otherwise

    def _tuple(
        self,
        hook: str,
        slot: int,
        argument: Any,
        items_name: str,
        is_good: Callable[[Any], bool],
        count: int | None = None,
    ) -> tuple[Any, ...]:
        """Return the hook's result, () if it fails: a tuple of good items, empty or of length `count`."""

        def call() -> tuple[Any, ...]:
            items = getattr(self._inner, hook)(slot, argument)
            good = isinstance(items, tuple) and all(map(is_good, items))
            if not good or (items and count not in (None, len(items))):
                size = "" if count is None else f" of {count}"
                raise WrongResult(f"{hook} returned {items!r:.60}, a tuple{size} of {items_name} expected")
            return tuple(items)

        return self._hook(hook, slot, call, ())

    def _guarded(self, hook: str, slot: int, call: Callable[[], T]) -> T:
        try:
            return call()
        except ProcessorsError:  # the stage refuses a parameter
            raise
        except BaseException as error:
            if _ends_step(error):
                raise
            raise StageFailure(fault_text(hook, error), stage=self.name, slot=slot, position=0) from error

    def _notice(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._notices.append(text)

    def _forget(self, slot: int) -> None:
        self._faults.pop(slot, None)
        self._last.pop(slot, None)

    def _is_id(self, value: Any) -> bool:
        return isinstance(value, int) and 0 <= value < self._width


def _built(stage: type[Processor[Any]], env: Env) -> Processor[Any]:
    built = stage(env)
    columns = getattr(built, "columns", None)  # missing without a call of Processor.__init__
    if isinstance(columns, Columns):
        columns.is_kept = False
    return built


def fault_text(hook: str, error: BaseException) -> str:
    """Return the failure of a call as a clause, for the end of a message."""
    if isinstance(error, WrongResult):
        return str(error)
    text = f"{type(error).__name__}({str(error)!r})" if str(error) else type(error).__name__
    return f"{hook} raised {text}{raised_in(error)}"


_EMPTY = "No token is left to choose from"
_Stage = Callable[[str, int], Processor[Any]]


def explain_failure(
    stage_of: _Stage, calls: Iterable[StageCall], keys: Iterable[Key], logits: Tensor, row: Rows
) -> RowError:
    """Return why a row failed: run `calls` on its logits [1, V], then ask the stages for recorded faults."""
    where = {"slot": row.host_slots[0], "position": int(row.positions[0])}
    work = logits.to(torch.float32, copy=True)
    error = _fault(work, "model", where)
    for call in calls:
        if error is not None:
            break
        stage = stage_of(*call.key)
        work = stage.apply(work, row)
        error = _fault(work, call.stage, where)
        if isinstance(error, NonFiniteLogits):
            error = _failure(call.stage, stage, where) or error
        elif error and (reason := stage.failure_reason(row.host_slots[0], row.host_drafts[0])):
            error = EmptySupport(f"{_EMPTY}: {reason}.", stage=call.stage, **where)
    failures = filter(None, (_failure(key[0], stage_of(*key), where) for key in keys))
    unknown = StageFailure("it failed among others and not alone", stage="?", **where)
    return error or next(failures, unknown)


def _failure(name: str, stage: Processor[Any], where: Mapping[str, int]) -> StageFailure | None:
    fault = stage.fault(where["slot"]) if isinstance(stage, ForeignStage) else None
    if fault is None:
        return None
    error = StageFailure(fault.text, stage=name, **where)
    error.__cause__ = fault.cause
    return error


def _fault(logits: Tensor, stage: str, where: Mapping[str, int]) -> RowError | None:
    top = float(logits.amax())
    if top == -torch.inf:
        return EmptySupport(f"{_EMPTY}: loosen this stage or one before it.", stage=stage, **where)
    if top < torch.inf:
        return None
    text = "NaN or +inf among the logits: the stage, or the model's number format, is at fault."
    return NonFiniteLogits(text, stage=stage, **where)
