"""The thread that owns the engine: orders arrive through an inbox, events leave once per step for the
mailbox of each call, exceptions become errors of the wire format.
"""

from __future__ import annotations

import asyncio
import logging
import re
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, cast

from gencli.config.option_names import with_flags
from gencli.config.run_options import OPTIONS
from gencli.core.events import Error, Event, Finish, Reading, Token, joined
from gencli.core.request import Request
from gencli.errors import ConfigError, DeviceError, GencliError, GenerationError, ModelError
from gencli.server.wire_fields import ApiError
from gencli.structured.output_spec import KINDS, OutputSpec
from processors.errors import ProcessorsError, is_out_of_memory

if TYPE_CHECKING:
    from gencli.runtime.compiled_grammars import RetryingEngine

_LOG = logging.getLogger(__name__)
_PAUSE = 0.02  # seconds between two deliveries of tokens; more than 50 a second do not help a reader


class EngineDied(GenerationError):
    """The engine has failed and runs no further requests."""


@dataclass(frozen=True, slots=True)
class EngineOrder:
    """A request, and the structure required of its texts."""

    request: Request
    structure: OutputSpec | None = None


@dataclass(frozen=True, slots=True)
class _Refused:
    """A request that the engine did not accept."""

    request: str
    error: Exception


_Delivery = Event | _Refused
_Report = Callable[[str], None]


class EngineThread:
    """Runs the engine on its own thread, for readers on the event loop that creates this object.

    All methods are called from that event loop. The thread processes its inbox before each step, delivers the
    events of a step in one call, and blocks on the inbox when idle. Tokens of short steps are delivered at
    most every `pause` seconds, because each delivery takes time from the engine. Notices of the engine leave
    it by `notice`. An error raised by a step ends the thread: `error` is set, and every call, open or new,
    gets EngineDied.
    """

    def __init__(self, engine: RetryingEngine, notice: _Report, *, pause: float = _PAUSE) -> None:
        self._engine, self._pause, self._notice = engine, pause, notice
        self._loop = asyncio.get_running_loop()
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._mailboxes: dict[str, Mailbox] = {}  # by request
        self._samples: dict[str, int] = {}  # number of samples that have not ended, by request
        self._is_stopped = False
        self._held: list[_Delivery] = []  # used by the thread: not delivered yet
        self._due = 0.0  # used by the thread: time of the next delivery of tokens
        self.error: BaseException | None = None
        self.on_event: Callable[[Event], None] = lambda event: None
        self._thread = threading.Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    @property
    def num_open(self) -> int:
        """Number of samples that have not ended."""
        return sum(self._samples.values())

    def open(self, orders: Sequence[EngineOrder]) -> Mailbox:
        """Submit the orders of one call; return the mailbox of their events. Ids have to be new.

        If the engine rejects an order, the mailbox fails with its error. Raises EngineDied.
        """
        if self.error is not None:
            raise self._died()
        mailbox = Mailbox(sum(order.request.n for order in orders))
        for order in orders:
            self._mailboxes[order.request.id] = mailbox
            self._samples[order.request.id] = order.request.n
        self._inbox.put(lambda: self._submit(orders))
        return mailbox

    def close(self, orders: Sequence[EngineOrder]) -> None:
        """Cancel the orders that have not ended: they end within a step, and their events are dropped."""
        for order in orders:
            self._mailboxes.pop(order.request.id, None)
            if order.request.id in self._samples:
                self._inbox.put(lambda name=order.request.id: self._engine.cancel(name))  # type: ignore[misc]

    def stop(self) -> None:
        """End the thread after the current step; open calls get EngineDied."""

        def stop() -> None:
            self._is_stopped = True

        self._inbox.put(stop)

    def join(self, seconds: float) -> bool:
        """Wait for the thread's end; return whether it has ended."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # Methods of the engine's thread.

    def _run(self) -> None:
        try:
            while not self._is_stopped:
                while self._engine.notices:
                    self._notice(self._engine.notices.pop(0))
                self._take_inbox()
                self._held += self._engine.step()
                is_due = time.monotonic() >= self._due or not self._engine.has_work
                # Tokens alone wait while more may follow.
                if self._held and (is_due or not all(isinstance(event, Token) for event in self._held)):
                    events, self._held = self._held, []
                    self._hand_over(lambda events=events: self._deliver(events))  # type: ignore[misc]
                    self._due = time.monotonic() + self._pause
            error: BaseException = EngineDied("The server has shut down.")
        except DeviceError as raised:
            _LOG.critical("%s %s", raised.message, with_flags(raised.hint))
            error = raised
        except BaseException as raised:  # any kind of exception, because nothing else would report it
            _LOG.critical("The engine has failed.", exc_info=raised)
            error = raised
        self._hand_over(lambda: self._die(error))

    def _take_inbox(self) -> None:
        if not self._engine.has_work:
            self._inbox.get()()  # waits
        with suppress(Empty):
            while not self._is_stopped:
                self._inbox.get_nowait()()

    def _submit(self, orders: Sequence[EngineOrder]) -> None:
        for order in orders:
            try:
                self._engine.submit(order.request, order.structure)
            except Exception as error:  # it concerns this request alone, and the engine is unchanged
                self._held.append(_Refused(order.request.id, error))

    def _hand_over(self, call: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the event loop is closed: there is no reader
            self._loop.call_soon_threadsafe(call)

    # Methods of the event loop.

    def _deliver(self, events: Sequence[_Delivery]) -> None:
        for event in events:
            mailbox = self._mailboxes.get(event.request)
            if isinstance(event, _Refused):
                self._samples.pop(event.request, None)
                self._mailboxes.pop(event.request, None)
                if mailbox is not None:
                    mailbox.fail(event.error)
                continue
            self.on_event(event)
            if mailbox is not None:
                mailbox.put(event)
            if isinstance(event, Finish | Error):
                self._samples[event.request] -= 1
                if not self._samples[event.request]:
                    del self._samples[event.request]
                    self._mailboxes.pop(event.request, None)

    def _die(self, error: BaseException) -> None:
        self.error = error
        for mailbox in self._mailboxes.values():
            mailbox.fail(self._died())
        self._mailboxes.clear()
        self._samples.clear()

    def _died(self) -> EngineDied:
        if isinstance(self.error, EngineDied):
            return self.error
        if isinstance(self.error, DeviceError):
            return EngineDied(self.error.message)
        return EngineDied(f"The engine has failed: {type(self.error).__name__}: {self.error}")


class Mailbox:
    """Buffers the events that the reader has not taken; belongs to the event loop.

    The buffer is bounded by the output of the call: a slow reader gets the tokens of several steps as one
    event. `num_open`: number of samples that have not ended.
    """

    def __init__(self, num_samples: int) -> None:
        self.num_open = num_samples
        self._events: list[Event] = []
        self._error: Exception | None = None
        self._filled = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether every sample has ended and the reader has taken all events."""
        return not self.num_open and not self._events and self._error is None

    def put(self, event: Event) -> None:
        if not self._events:
            self._filled.set()
        self._events.append(event)
        self.num_open -= isinstance(event, Finish | Error)

    def fail(self, error: Exception) -> None:
        """Raise this error in the reader after the events that it has not taken."""
        self._error = self._error or error
        self._filled.set()

    async def take(self) -> list[Event]:
        """Wait for events and return them, merged. Raises the error of `fail`."""
        await self._filled.wait()
        if not self._events and self._error is not None:
            raise self._error
        events, self._events = merge(self._events), []
        if self._error is None:
            self._filled.clear()
        return events


def merge(events: Iterable[Event]) -> list[Event]:
    """Return the events with the tokens of each sample merged, and only the last Reading of each prompt.

    Events of one sample keep their order.
    """
    readings = dict[str, Reading]()
    groups = dict[object, list[Event]]()  # the tokens of each sample, and each other event alone
    for number, event in enumerate(events):
        if isinstance(event, Reading):
            readings[event.request] = event
        else:
            key = (event.request, event.sample) if isinstance(event, Token) else number
            groups.setdefault(key, []).append(event)
    others = (joined(cast(list[Token], group)) if group[1:] else group[0] for group in groups.values())
    return [*readings.values(), *others]


# Beginnings of messages that name no option.
_BEGINNINGS = (
    ("The stop pattern", "stop_regex"),
    ("There is no stage", "chain"),
    ("There is no stage", "stages"),
    ("The drafter", "draft"),
    ("The amateur", "contrast"),
    ("There is no tool", "tool_choice"),
    ("A draft (", "beams"),
    ("A draft (", "contrastive_alpha"),
)
# Beginnings of messages about stages, and the options that have stages in them.
_OF_STAGE = re.compile(
    r"stages\.|((In )?[Tt]he stage|Stage|An item of chain|/\S* is|\w+:|\w+ (names|cannot compile)) "
)
_STAGES = ("chain", "stages", "fields")


def api_error(error: BaseException, fields: Mapping[str, str] | None = None) -> ApiError:
    """Return the ApiError of an exception; `fields`: the body's field that set each option."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, EngineDied | DeviceError):
        return ApiError(503, error.message, code="shutdown" if "shut down" in error.message else "dead")
    if isinstance(error, GencliError | ProcessorsError):
        hint = error.hint if isinstance(error, GencliError) else ""
        message = error.message if isinstance(error, GencliError) else str(error)
        code = "template_error" if isinstance(error, ModelError) else "invalid_value"
        code = "invalid_structure" if isinstance(error, ConfigError) else code
        return ApiError(400, message, param=_param(message, code, fields or {}), code=code, hint=hint)
    if is_out_of_memory(error):
        return ApiError(503, "The memory of the server is full.", code="out_of_memory")
    fault = f"The server failed on this request ({type(error).__name__})."
    return ApiError(500, fault, code="internal_error")


def _param(message: str, code: str, fields: Mapping[str, str]) -> str | None:
    # The body's field that a message is about.
    first = message.split(" ", 1)[0].strip("`:,").partition("[")[0]
    keys = [first, *(entry.key for entry in OPTIONS if entry.stage == first)]
    keys += [key for beginning, key in _BEGINNINGS if message.startswith(beginning)]
    keys += re.findall(r"`(\w+)`", message)
    keys += KINDS if code == "invalid_structure" else ()
    keys += _STAGES if _OF_STAGE.match(message) else ()
    return next((fields[key] for key in keys if key in fields), None)
