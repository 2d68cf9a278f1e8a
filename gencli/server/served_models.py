"""Plan of `gencli serve` (settings of each model, conditions of the server), and the models served by
name, with admission control, threads and counters. Imports nothing heavy.
"""

from __future__ import annotations

import asyncio
import ipaddress
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from gencli.config.layers import gather
from gencli.config.settings import AUTO_BATCH, Settings, run_variables, untraced
from gencli.core.events import Drafted, Error, Event, Finish
from gencli.errors import UsageError
from gencli.files import read_file
from gencli.helpers import counted
from gencli.server.access import (
    AccessRules,
    Bodies,
    CallLimits,
    Conditions,
    Receive,
    Scope,
    parse_body,
    read_body,
)
from gencli.server.serve_options import OWN, served_names
from gencli.server.wire_fields import ApiError
from processors.grammar.compile_guards import DaemonPool

if TYPE_CHECKING:
    from gencli.server.serving import Serving


API_KEY = "GENCLI_API_KEY"
_MAX_KEY_BYTES = 4096  # bytes of a key file


@dataclass(frozen=True, slots=True)
class ServePlan:
    """`models`: settings by public name. `is_auto`: `max_batch` is planned from the free memory."""

    host: str
    port: int
    models: Mapping[str, Settings]
    conditions: Conditions
    is_auto: bool
    has_page: bool

    @property
    def settings(self) -> Settings:
        """The settings of the first model; others differ only in settings of the model itself."""
        return next(iter(self.models.values()))


def make_plan(options: Mapping[str, Any], environ: Mapping[str, str]) -> ServePlan:
    """Return the plan of options and variables. Raises UsageError for contradictions."""
    values = {
        entry.key: entry.value(options[entry.key]) if entry.key in options else entry.default for entry in OWN
    }
    shared = {key: value for key, value in options.items() if key not in values}
    is_auto = values["max_batch"] == "auto" or AUTO_BATCH in environ.items()
    if "max_batch" in options and values["max_batch"] != "auto":
        shared["max_batch"], is_auto = values["max_batch"], False
    of_models = [{**shared, "model": name} for name in values["model"]] or [shared]
    variables = untraced(run_variables(environ))  # traces are options of requests
    settings = [gather(options_of_model, variables, is_neutral=True) for options_of_model in of_models]
    names = served_names([of_model["model"] for of_model in settings], values["served_name"])
    first = settings[0]
    traced, has_mark = values["max_trace"], first["watermark"] != "none"
    if traced is None:  # with a watermark a trace would show what the mark prefers
        traced = 0 if has_mark else CallLimits().trace
    key, seconds = _read_key(values["api_key_file"], environ), first["grammar_timeout"]
    conditions = Conditions(
        AccessRules(key, tuple(values["allow_host"]), tuple(values["allow_origin"])),
        CallLimits(grammar_seconds=seconds, trace=traced, processed=bool(traced) or not has_mark),
        max_queue=values["max_queue"],
        queue_timeout=values["queue_timeout"],
        shutdown_timeout=values["shutdown_timeout"],
        is_lenient=values["lenient"],
    )
    models = dict(zip(names, settings, strict=True))
    return ServePlan(values["host"], values["port"], models, conditions, is_auto, values["open"])


def _read_key(path: str | None, environ: Mapping[str, str]) -> str:
    if path is None:
        return environ.get(API_KEY, "").strip()
    try:
        key = read_file(Path(path), _MAX_KEY_BYTES).decode().strip()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8 text"
        raise UsageError(f"`api_key_file` = {path} cannot be read: {reason}.") from None
    if not key:
        raise UsageError(f"`api_key_file` = {path} is empty.", hint="Write the key into it.")
    return key


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


T = TypeVar("T")
_THREADS = 2  # threads that parse bodies; each keeps some of the memory of the largest ones


class Models:
    """The models by name; the first one serves requests without a model name. For the event loop.

    Each model has its own engine, threads, admission and metrics; `conditions` are shared. A call is counted
    twice: here while its body is read, because its model is not known yet, and then by its model.
    """

    def __init__(self, *servings: Serving) -> None:
        self._servings = {serving.name: serving for serving in servings}
        self._first, self.conditions = servings[0], servings[0].conditions
        self._admission = AdmissionControl(sum(serving.admission.limit for serving in self))
        self._pool = DaemonPool(_THREADS)
        self._bodies = Bodies()
        self.replies: Counter[int] = Counter()  # replies by status

    def __iter__(self) -> Iterator[Serving]:
        return iter(self._servings.values())

    def get(self, name: str | None) -> Serving:
        """Return the model of a name, the first model for None. Raises ApiError 404."""
        if not name:
            return self._first
        if name not in self._servings:
            message, hint = f"There is no model {name[:200]!r}.", f"Known: {', '.join(self._servings)}."
            raise ApiError(404, message, param="model", code="model_not_found", hint=hint)
        return self._servings[name]

    def start(self) -> None:
        """Start the engine threads, for the running event loop."""
        for serving in self:
            serving.start()

    def stop(self) -> None:
        self._admission.is_draining = True
        for serving in self:
            serving.stop()
        self._pool.shutdown()

    async def drain(self) -> None:
        """Accept no more calls; wait for running calls, then end them with an error."""
        self._admission.is_draining = True
        end = time.monotonic() + self.conditions.shutdown_timeout
        while self._admission.num_calls and time.monotonic() < end:
            await asyncio.sleep(0.02)
        self.cut()

    def cut(self) -> None:
        """End the running calls with an error, after the current step."""
        for serving in self:
            serving.thread.stop()

    @property
    def state(self) -> str:
        """ "ready", "draining", or "dead" if an engine has failed."""
        if self._admission.is_draining:
            return "draining"
        return "dead" if any(serving.thread.error is not None for serving in self) else "ready"

    def enter(self) -> AbstractContextManager[Callable[[int], None]]:
        """Count a call before its body is read. Raises ApiError 503, or 429 if every model is full."""
        if not self._admission.is_draining and all(serving.admission.is_full for serving in self):
            raise self._first.admission.full()
        return self._admission.enter()

    @asynccontextmanager
    async def body(self, scope: Scope, receive: Receive) -> AsyncIterator[bytes]:
        """Read the body of a call, and count the call until its end.

        Raises ApiError. A full server refuses a call before reading it. A call whose body is being read does
        not count as work; otherwise clients that never finish their bodies could fill the server.
        """
        with self.enter():
            pass
        with self._bodies.room() as hold:
            body = await read_body(scope, receive, self.conditions.limits.body, hold)
            with self.enter():
                yield body

    async def read(self, body: bytes, use: Callable[[Serving, Any], T]) -> tuple[Serving, T]:
        """Return the model that a body names, and `use(model, value)` of the body's JSON value.

        Runs outside of the event loop. Raises ApiError.
        """
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._read, body, use)

    def _read(self, body: bytes, use: Callable[[Serving, Any], T]) -> tuple[Serving, T]:
        value = parse_body(body)
        name = value.get("model") if isinstance(value, Mapping) else None
        serving = self.get(name if isinstance(name, str) else None)  # `use` rejects a name that is not text
        try:
            return serving, use(serving, value)
        except Exception as error:
            raise serving.error(error) from None


class AdmissionControl:
    """Counts the samples of all unanswered calls: at most `limit`, or one call of any size."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.num_samples = self.num_calls = self.num_refused = 0
        self.is_draining = False

    @property
    def is_full(self) -> bool:
        return self.num_samples >= self.limit

    @contextmanager
    def enter(self) -> Iterator[Callable[[int], None]]:
        """Count a call as one sample until the end of the block. Raises ApiError 429 or 503.

        Yield a function that counts it as more samples; it raises ApiError 429 if other calls leave too
        little room.
        """
        size = 1

        def grow(wanted: int) -> None:
            nonlocal size
            others = self.num_samples - size
            if others and others + wanted > self.limit:
                raise self.full()
            self.num_samples, size = others + wanted, wanted

        if self.is_draining:
            raise ApiError(503, "The server is shutting down.", code="shutdown")
        if self.is_full:
            raise self.full()
        self.num_samples += 1
        self.num_calls += 1
        try:
            yield grow
        finally:
            self.num_samples -= size
            self.num_calls -= 1

    def full(self) -> ApiError:
        """Return the error for a full server, and count the refusal."""
        self.num_refused += 1
        texts = counted(self.limit, "text")
        return ApiError(429, f"The server is full: it takes {texts} at a time.", code="queue_full")


Family = tuple[str, str, list[str]]  # name, type, lines

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


class Histogram:
    """Counts of seconds by upper bounds."""

    def __init__(self) -> None:
        self.counts, self.total = [0] * (len(_SECONDS) + 1), 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(_SECONDS, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str) -> Iterable[str]:
        seen = 0
        for bound, count in zip((*map(str, _SECONDS), "+Inf"), self.counts, strict=True):
            seen += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {seen}'
        yield f"{name}_sum{{{labels}}} {self.total:.6f}"
        yield f"{name}_count{{{labels}}} {seen}"


class Metrics:
    """Counters and latency histograms of a model since the server started. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.finished: Counter[str] = Counter()  # samples by reason
        self.tokens: Counter[str] = Counter()
        self.drafted = Drafted()
        names = (
            "time_to_first_token_seconds inter_token_latency_seconds request_queue_time_seconds "
            "request_prefill_time_seconds request_decode_time_seconds e2e_request_latency_seconds"
        )
        self._times = {name: Histogram() for name in names.split()}

    def add(self, event: Event) -> None:
        """Count an event of the engine."""
        if isinstance(event, Error):
            self.finished["error"] += 1
        if not isinstance(event, Finish):
            return
        self.finished[event.reason] += 1
        self.tokens["prompt"] += event.prompt_tokens
        self.tokens["cached"] += event.cached_tokens
        self.tokens["generation"] += event.completion_tokens
        if event.drafted is not None:
            self.drafted += event.drafted
        if not event.completion_tokens:
            return
        times = event.timings
        self._times["time_to_first_token_seconds"].add(times.first_token)
        self._times["request_queue_time_seconds"].add(times.queue)
        self._times["request_prefill_time_seconds"].add(times.prefill)
        self._times["request_decode_time_seconds"].add(times.decode)
        self._times["e2e_request_latency_seconds"].add(times.first_token + times.decode)
        if event.decoded_tokens > 1:
            self._times["inter_token_latency_seconds"].add(times.decode / (event.decoded_tokens - 1))

    def families(self, model: str, gauges: Mapping[str, float]) -> Iterator[Family]:
        """Yield each metric of a model as its name, type and lines; `gauges`: current values."""
        label = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        labels = f'model_name="{label}"'
        for name, value in gauges.items():
            yield name, "gauge", [f"gencli_{name}{{{labels}}} {value:g}"]
        name = "request_success_total"
        ended = [
            f'gencli_{name}{{{labels},finished_reason="{reason}"}} {count}'
            for reason, count in self.finished.items()
        ]
        yield name, "counter", ended
        for kind in ("prompt", "cached", "generation"):
            name = f"{kind}_tokens_total"
            yield name, "counter", [f"gencli_{name}{{{labels}}} {self.tokens[kind]}"]
        yield from self._of_drafts(labels)
        for name, histogram in self._times.items():
            yield name, "histogram", [*histogram.lines(f"gencli_{name}", labels)]

    def _of_drafts(self, labels: str) -> Iterator[Family]:
        """Yield the metrics of draft tokens, with the names of vLLM's, nodes of trees, and seconds."""
        proposed, accepted = self.drafted.proposed, self.drafted.accepted
        values = {
            "drafts": sum(proposed[:1]),
            "draft_tokens": sum(proposed),
            "accepted_tokens": sum(accepted),
            "tree_nodes": self.drafted.nodes,
        }
        for kind, value in values.items():
            name = f"spec_decode_num_{kind}_total"
            yield name, "counter", [f"gencli_{name}{{{labels}}} {value}"]
        name = "spec_decode_num_accepted_tokens_per_pos_total"
        lines = [f'gencli_{name}{{{labels},position="{i}"}} {count}' for i, count in enumerate(accepted)]
        yield name, "counter", lines
        for kind, seconds in (("draft", self.drafted.draft_seconds), ("verify", self.drafted.verify_seconds)):
            name = f"spec_decode_{kind}_seconds_total"
            yield name, "counter", [f"gencli_{name}{{{labels}}} {seconds:g}"]


def metrics_text(replies: Mapping[int, int], models: Iterable[Iterable[Family]]) -> str:
    """Return the text format: the replies of the server by status, and the metrics of all models.

    Each metric has one TYPE line, whatever the number of models.
    """
    name = "http_replies_total"
    counts = [f'gencli_{name}{{status="{status}"}} {count}' for status, count in replies.items()]
    metrics: dict[str, tuple[str, list[str]]] = {name: ("counter", counts)}
    for families in models:
        for name, kind, lines in families:
            metrics.setdefault(name, (kind, []))[1].extend(lines)
    text = ["\n".join([f"# TYPE gencli_{name} {kind}", *lines]) for name, (kind, lines) in metrics.items()]
    return "\n".join([*text, ""])
