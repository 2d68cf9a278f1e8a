"""Compares a chain with the chain of a trace, on the trace's kept logits. No model is needed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gencli.errors import GenerationError, UsageError
from gencli.explain.compare import Comparison, Output, Place, SideBySide
from gencli.explain.replay import chain_of, kept_of, replay_of
from gencli.explain.trace_file import TracedText, text_label
from processors.base import Vocabulary
from processors.catalog import Draw
from processors.chain import Chain
from processors.errors import ProcessorsError
from processors.explain.kept import KeptLogits
from processors.registry import Registry

__all__ = ["Other", "compare_trace", "known_texts"]


@dataclass(frozen=True, slots=True)
class Other:
    """The chain B. None takes the trace's value; a draw that was greedy in the trace becomes gumbel."""

    chain: Chain
    draw: Draw | None = None
    stop_ids: tuple[int, ...] | None = None
    max_tokens: int | None = None
    registry: Registry | None = None


def compare_trace(text: TracedText, other: Other, vocabulary: Vocabulary | None = None) -> Comparison:
    """Return the comparison of a traced text; without a vocabulary no stage may need the texts of ids.

    Raises GenerationError for a text without kept logits or an invalid head, UsageError for another
    vocabulary, ProcessorsError for a chain that cannot run.
    """
    tokens = tuple(record["id"] for record in text.records)
    own = Output(tokens, "".join(record["text"] for record in text.records), text.reason)
    along, size, places = None, 0, list[Place]()
    for record, kept in kept_of(text):
        if along is None:
            along, size = _begin(text.head, kept, other, vocabulary), kept.vocab_size
        if kept.vocab_size != size or not 0 <= record["id"] < size:
            raise GenerationError(f"The token at {record['pos']} is not of the vocabulary of the others.")
        places.append(along.place(record["id"], kept, record["decided_by"]))
    name, prompt = text_label(text.key), str(text.head.get("prompt", ""))
    return Comparison(name, prompt, own, None, tuple(places), known_texts(text))


def _begin(
    head: Mapping[str, Any], kept: KeptLogits, other: Other, vocabulary: Vocabulary | None
) -> SideBySide:
    """Return both chains at the first position of a text."""
    if vocabulary is not None and vocabulary.vocab_size > kept.vocab_size:
        raise UsageError(
            f"The model's tokenizer has {vocabulary.vocab_size} tokens, those of the trace are "
            f"{kept.vocab_size}.",
            hint="Give the `model` of the trace, or none.",
        )
    try:
        chain, draw = chain_of(head, other.registry)
        a = replay_of(head, kept, vocabulary, chain, draw, other.registry)
    except (TypeError, ValueError, ProcessorsError) as error:
        raise GenerationError(f"The chain of the trace cannot be run: {error}.") from None
    wanted, tail = other.chain, chain.get("tail")
    if tail is not None and vocabulary is None:
        wanted = wanted.with_stage("tail", other.registry, **tail.to_mapping())
    own = {"stop_ids": other.stop_ids and [*other.stop_ids], "max_tokens": other.max_tokens}
    told = {**head, **{key: value for key, value in own.items() if value is not None}}
    method = other.draw or ("gumbel" if draw == "greedy" else draw)
    return SideBySide(a, replay_of(told, kept, vocabulary, wanted, method, other.registry))


def known_texts(text: TracedText) -> dict[int, str]:
    """Return the texts of all ids in the records."""
    found = {record["id"]: record["text"] for record in text.records}
    for record in text.records:
        for place in (record["raw"], record["final"], *record["stages"]):
            found |= {token: name for token, name, _ in place["top"] if isinstance(token, int)}
    return found
