"""Reports of a sequence: the tokens appended by a step, and its final event."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from gencli.core.events import Error, Finish, Timings
from gencli.text.text_stream import Finish as Reason

if TYPE_CHECKING:
    from gencli.engine.sequence import Sequence

__all__ = ["Taken", "failed", "finished"]


class Taken(NamedTuple):
    """Tokens appended to a sequence; `forced`: under a grammar, whether each was the only legal one."""

    ids: tuple[int, ...]
    forced: tuple[bool, ...] = ()


def failed(sequence: Sequence, error: Exception, text: str) -> Error:
    """Return the event of a sequence that failed with `error` after the output `text`."""
    name, count = type(error).__name__, len(sequence.output)
    return Error(sequence.request.id, sequence.sample, name, str(error), text, count, error.__cause__)


def finished(sequence: Sequence, finish: Reason, text: str, now: float) -> Finish:
    """Return the event of a sequence that ended with the output `text` at `now`, in monotonic seconds."""
    started = now if sequence.started is None else sequence.started
    first = now if sequence.first_token is None else sequence.first_token
    return Finish(
        request=sequence.request.id,
        sample=sequence.sample,
        text=text,
        reason=finish.reason,
        matched=finish.matched,
        offset=finish.offset,
        prompt_tokens=len(sequence.prompt),
        completion_tokens=len(sequence.output),
        timings=Timings(
            prefill=first - started,
            decode=now - first,
            first_token=first - sequence.submitted,
            queue=started - sequence.submitted,
        ),
        cached_tokens=sequence.num_cached_tokens,
        document=sequence.document,
        logprob=sequence.logprob,
        drafted=sequence.drafted,
    )
