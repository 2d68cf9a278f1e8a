"""Runs of the model of tests.speculative.agreeing_heads, with its draft heads and without."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from gencli.core.request import Drafting, Guidance, Limits, Request
from gencli.engine.engine import Engine
from gencli.runtime.model_loading import Loaded, ModelChoice, load
from gencli.runtime.wiring import make_drafter
from gencli.speculative.drafter import Drafter
from gencli.speculative.head_check import TEXT
from processors.chain import Chain
from processors.stages.grammar_stage import GrammarParams
from processors.verification import Verification
from tests.engine.harness import ends_of, events_of, ids_of, request
from tests.speculative.agreeing_heads import Pair, write_pair

_FOLDERS: list[TemporaryDirectory[str]] = []  # which are there until the process ends
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
REJECTION = Verification("rejection")


@cache
def pair(kind: str) -> Pair:
    """The model of a kind and its head."""
    _FOLDERS.append(TemporaryDirectory())
    return write_pair(kind, Path(_FOLDERS[-1].name))


def loaded(kind: str) -> Loaded:
    """The model of a kind with empty lanes; all engines of a process have it, one after the other."""
    model = _loaded(kind)
    for lane in range(choice(kind).max_lanes):
        model.runner.release(lane)
    return model


@cache
def _loaded(kind: str) -> Loaded:
    return load(choice(kind))


def choice(kind: str, max_batch: int = 8) -> ModelChoice:
    return ModelChoice(name=pair(kind).model, dtype="float32", max_batch=max_batch, companions=True)


@dataclass(frozen=True)
class Outcomes:
    """By request and sample the ids, the text and its end; numbers of proposed and accepted drafts.

    `nodes`: drafts in trees, of which those on the path that was walked are proposed.
    """

    texts: dict[tuple[str, int], tuple[tuple[int, ...], str, str]]
    proposed: int
    accepted: int
    nodes: int

    @property
    def is_mixed(self) -> bool:
        """Whether some drafts were accepted and some were not."""
        return 0 < self.accepted < self.proposed


def outcomes(
    kind: str,
    requests: Sequence[Request],
    *,
    drafter: Drafter | None = None,
    max_batch: int = 5,
    **options: Any,
) -> Outcomes:
    """The outcomes of requests with the head of a kind, or another drafter. By the clock it costs nothing."""
    model, ticks = loaded(kind), count()
    own = drafter or make_drafter(pair(kind).head, model, choice(kind, max_batch), clock=lambda: 0.0)
    on = Engine(
        model.runner,
        model.tokenizer,
        max_batch=max_batch,
        drafter=own,
        clock=lambda: float(next(ticks)),
        **options,
    )
    events = events_of(requests, on=on)
    ids, ends = ids_of(events), ends_of(events)
    drafts = [end.drafted for end in ends.values() if getattr(end, "drafted", None)]
    return Outcomes(
        {
            key: (ids.get(key, ()), end.text, getattr(end, "reason", None) or end.message)
            for key, end in ends.items()
        },
        sum(sum(drafted.proposed) for drafted in drafts),
        sum(sum(drafted.accepted) for drafted in drafts),
        sum(drafted.nodes for drafted in drafts),
    )


def drafted(kind: str, requests: Sequence[Request], tokens: int | None = 4, **values: Any) -> list[Request]:
    """The requests with drafts of the head."""
    drafting = Drafting(pair(kind).head, tokens, **values)
    return [replace(one, drafting=drafting) for one in requests]


def plain(requests: Sequence[Request]) -> list[Request]:
    """The requests without any drafts."""
    return [replace(one, drafting=Drafting("none"), jump="off") for one in requests]


def prompts() -> Iterator[str]:
    """Parts of a text, which begin and end anywhere."""
    for number in count():
        start = 37 * number % (len(TEXT) - 120)
        yield TEXT[start : start + 1 + 29 * number % 90]


def within(grammar: GrammarParams, one: Request) -> Request:
    """The request within a grammar."""
    return replace(one, chain=Chain((("grammar", grammar), *one.chain.stages)), limits=Limits(max_tokens=60))


def conditioned(name: str, number: int, first: int = 0) -> list[Request]:
    """Requests of one of CONDITIONS, with `number` prompts from the `first` one on."""
    made = []
    for index, text in islice(enumerate(prompts()), first, first + number):
        chain = "temperature=0" if name == "greedy" else "temperature=0.9"
        if name == "penalties":
            chain = "repetition=1.3 | frequency=0.4 | presence=0.3 | temperature=0.8"
        one = request(text, key=f"{name} {index}", seed=index, chain=chain)
        if name == "guidance":
            negative = None if index % 2 else tuple(b"Nobody was there.")
            one = replace(one, guidance=Guidance(1.5 + index % 3, negative=negative))
        if name == "schema":
            one = within(GrammarParams(json.dumps(SCHEMA)), one)
        if name == "regex":
            one = within(GrammarParams("[a-z ]{5,30}[0-9]{2}", kind="regex"), one)
        made.append(one)
    return made


def of_cells(
    kind: str, name: str, cells: Sequence[tuple[dict[str, Any], int]], each: int
) -> Iterator[tuple[Any, Outcomes]]:
    """Yield each cell, options of drafts and a batch size, with its outcomes of `each` requests.

    The texts have to be those without drafts.
    """
    number = len(cells) * each
    requests = conditioned(name, number, first=CONDITIONS.index(name) * number)
    expected = outcomes(kind, plain(requests)).texts
    for cell, (values, max_batch) in enumerate(cells):
        part = drafted(kind, requests[cell :: len(cells)], **values)
        found = outcomes(kind, part, max_batch=max_batch)
        assert found.texts == {key: expected[key] for key in found.texts}, (values, max_batch)
        assert len(found.texts) == each
        yield (values, max_batch), found


CONDITIONS = ("greedy", "drawn", "schema", "regex", "guidance", "penalties")
