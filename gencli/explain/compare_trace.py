"""A chain on the kept logits of a trace, beside the chain that made it. No model is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, get_args

from gencli.errors import GenerationError, UsageError
from gencli.explain.compare import Comparison, Output, SideBySide
from gencli.explain.kept import read_kept
from gencli.explain.record import Record
from gencli.explain.replay import Replay
from gencli.explain.trace_file import TracedText
from processors.base import Admission, Env, Vocabulary
from processors.catalog import Draw
from processors.chain import Chain
from processors.errors import ProcessorsError
from processors.explain.kept import KeptLogits
from processors.params import MOST
from processors.registry import Registry

__all__ = ["Other", "compare_trace", "known_texts"]

_MOST_STAGES = 256  # of a chain in a trace


@dataclass(frozen=True, slots=True)
class Other:
    """The chain B. What is None is as in the trace; a draw that was greedy there is gumbel."""

    chain: Chain
    draw: Draw | None = None
    stop_ids: tuple[int, ...] | None = None
    max_tokens: int | None = None
    registry: Registry | None = None


def compare_trace(text: TracedText, other: Other, vocabulary: Vocabulary | None = None) -> Comparison:
    """Return the comparison of a traced text; without a vocabulary no stage may need the texts of ids.

    Raises GenerationError for a text without kept logits or a wrong head, ProcessorsError for a chain that
    cannot run.
    """
    tokens = tuple(record["id"] for record in text.records)
    own = Output(tokens, "".join(record["text"] for record in text.records), text.reason)
    along, places = None, []
    for record in text.records:
        kept = _kept(record)
        along = along or _begin(text.head, kept, other, vocabulary)
        if kept.vocab_size != along.env.vocab_size or not 0 <= record["id"] < kept.vocab_size:
            raise GenerationError(f"The token at {record['pos']} is not of the vocabulary of the others.")
        places.append(along.both.place(record["id"], kept, map(str, record["decided_by"])))
    return Comparison(_name(text), str(text.head.get("prompt", "")), own, None, tuple(places))


@dataclass(frozen=True, slots=True)
class _Along:
    env: Env
    both: SideBySide


def _name(text: TracedText) -> str:
    request, sample = text.key
    return f"{request}, sample {sample}" if sample else str(request)


def _kept(record: Record) -> KeptLogits:
    if "logits" not in record:
        raise UsageError(
            "The trace has no logits, so no other chain can be run on it.",
            hint="Write it with `keep_logits` = N beside `trace`.",
        )
    try:
        return read_kept(record["logits"])
    except (KeyError, TypeError, ValueError) as error:
        raise GenerationError(
            f"The logits of the token at {record['pos']} cannot be read: {error}."
        ) from None


def _begin(head: Mapping[str, Any], kept: KeptLogits, other: Other, vocabulary: Vocabulary | None) -> _Along:
    """Return both chains at the first place of a text."""
    if vocabulary is not None and vocabulary.vocab_size > kept.vocab_size:
        raise UsageError(
            f"The model's tokenizer has {vocabulary.vocab_size} tokens, those of the trace are "
            f"{kept.vocab_size}.",
            hint="Give the `model` of the trace, or none.",
        )
    try:
        env = Env(kept.vocab_size, vocabulary, _ids(head["eos_ids"], kept))
        chain, draw, told = _own_chain(head, other.registry), head["draw"], _told(head, kept)
        if draw not in get_args(Draw):
            raise ValueError(f"draw is {str(draw)[:40]!r}")
        a = Replay(chain, env, kept, draw=draw, request=told, registry=other.registry)
    except (AttributeError, KeyError, TypeError, ValueError, ProcessorsError) as error:
        raise GenerationError(f"The chain of the trace cannot be run: {error}.") from None
    wanted, tail = other.chain, chain.get("tail")
    if tail is not None and vocabulary is None:
        wanted = wanted.with_stage("tail", other.registry, **tail.to_mapping())
    stops = told.stop_ids if other.stop_ids is None else other.stop_ids
    told = replace(told, stop_ids=stops, max_tokens=other.max_tokens or told.max_tokens)
    draw = other.draw or ("gumbel" if draw == "greedy" else draw)
    b = Replay(wanted, env, kept, draw=draw, request=told, registry=other.registry)
    return _Along(env, SideBySide(a, b))


def _own_chain(head: Mapping[str, Any], registry: Registry | None) -> Chain:
    if len(head["chain"]) > _MOST_STAGES:
        raise ValueError(f"it has {len(head['chain'])} stages")
    return Chain.from_list(head["chain"], registry)


def _told(head: Mapping[str, Any], kept: KeptLogits) -> Admission:
    most = head["max_tokens"]
    if type(most) is not int or not 0 < most <= MOST:
        raise ValueError(f"max_tokens is {str(most)[:40]!r}")
    return Admission(_ids(head["prompt_ids"], kept), _ids(head["stop_ids"], kept), most)


def _ids(found: Any, kept: KeptLogits) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(type(i) is int and 0 <= i < kept.vocab_size for i in found):
        raise ValueError(f"{str(found)[:40]} are not ids of {kept.vocab_size}")
    return tuple(found)


def known_texts(text: TracedText) -> dict[int, str]:
    """Return the texts of the ids that the records name."""
    found = {record["id"]: record["text"] for record in text.records}
    for record in text.records:
        for place in (record["raw"], record["final"], *record["stages"]):
            found |= {token: name for token, name, _ in place["top"] if isinstance(token, int)}
    return found
