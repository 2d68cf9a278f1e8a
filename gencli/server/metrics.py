"""Counters and histograms in Prometheus' text format."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from gencli.core.events import Error, Event, Finish

__all__ = ["Family", "Histogram", "Metrics", "metrics_text"]

Family = tuple[str, str, list[str]]  # name, type, lines

_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0)


@dataclass(slots=True)
class Histogram:
    """Counts of values by upper bounds."""

    bounds: tuple[float, ...] = _SECONDS
    counts: list[int] = field(init=False)
    total: float = 0.0

    def __post_init__(self) -> None:
        self.counts = [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def lines(self, name: str, labels: str) -> Iterable[str]:
        """Yield the lines of the text format."""
        seen = 0
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            seen += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {seen}'
        yield f"{name}_sum{{{labels}}} {self.total:.6f}"
        yield f"{name}_count{{{labels}}} {seen}"


class Metrics:
    """Counters and latency histograms of a model since the server started. Times are monotonic seconds."""

    def __init__(self) -> None:
        self.finished: Counter[str] = Counter()  # samples by reason
        self.tokens: Counter[str] = Counter()
        self._times = {
            "time_to_first_token_seconds": Histogram(),
            "inter_token_latency_seconds": Histogram(),
            "request_queue_time_seconds": Histogram(),
            "request_prefill_time_seconds": Histogram(),
            "request_decode_time_seconds": Histogram(),
            "e2e_request_latency_seconds": Histogram(),
        }

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
        if not event.completion_tokens:
            return
        times = event.timings
        for name, seconds in (
            ("time_to_first_token_seconds", times.first_token),
            ("request_queue_time_seconds", times.queue),
            ("request_prefill_time_seconds", times.prefill),
            ("request_decode_time_seconds", times.decode),
            ("e2e_request_latency_seconds", times.first_token + times.decode),
        ):
            self._times[name].add(seconds)
        if event.completion_tokens > 1:
            self._times["inter_token_latency_seconds"].add(times.decode / (event.completion_tokens - 1))

    def families(self, model: str, gauges: Mapping[str, float]) -> Iterator[Family]:
        """Yield each metric of a model as its name, type and lines; `gauges`: current values."""
        labels = f'model_name="{_escaped(model)}"'
        for name, value in gauges.items():
            yield name, "gauge", [f"gencli_{name}{{{labels}}} {value:g}"]
        yield (
            "request_success_total",
            "counter",
            [
                f'gencli_request_success_total{{{labels},finished_reason="{reason}"}} {count}'
                for reason, count in self.finished.items()
            ],
        )
        for kind in ("prompt", "cached", "generation"):
            name = f"{kind}_tokens_total"
            yield name, "counter", [f"gencli_{name}{{{labels}}} {self.tokens[kind]}"]
        for name, histogram in self._times.items():
            yield name, "histogram", [*histogram.lines(f"gencli_{name}", labels)]


def metrics_text(replies: Mapping[int, int], models: Iterable[Iterable[Family]]) -> str:
    """Return the text format: the replies of the server by status, and the metrics of all models.

    Each metric has one TYPE line, whatever the number of models.
    """
    found: dict[str, tuple[str, list[str]]] = {
        "http_replies_total": (
            "counter",
            [f'gencli_http_replies_total{{status="{status}"}} {count}' for status, count in replies.items()],
        )
    }
    for families in models:
        for name, kind, lines in families:
            found.setdefault(name, (kind, []))[1].extend(lines)
    text = ["\n".join([f"# TYPE gencli_{name} {kind}", *lines]) for name, (kind, lines) in found.items()]
    return "\n".join([*text, ""])


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
