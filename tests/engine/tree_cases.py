"""Drafts that branch, made by hand for texts that are known, for the tests of trees in the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from random import Random
from typing import Any

import torch
import transformers as hf

from gencli.core.request import Drafting, Request
from gencli.core.tree_shapes import DynamicTree
from gencli.models.decoder.decoder import DecoderRunner
from gencli.speculative.drafter import DraftAsk, Drafter, DraftTree
from tests.engine.harness import ends_of, engine, events_of, ids_of
from tests.models.native import native_decoder
from tests.models.tiny_models import base

VOCAB = 258  # of ByteTokenizer
NODES = 24
KINDS = {
    "full": lambda: hf.LlamaConfig(**base(vocab_size=VOCAB)),
    "window": lambda: hf.MistralConfig(**base(vocab_size=VOCAB, sliding_window=12)),
}


@cache
def decoder(kind: str) -> Any:
    torch.manual_seed(0)
    return native_decoder(hf.AutoModelForCausalLM.from_config(KINDS[kind]()).eval())


def runner(kind: str = "full") -> DecoderRunner:
    return DecoderRunner(decoder(kind), max_lanes=16)


class Branching(Drafter):
    """Proposes trees whose nodes are partly right: `answers` are known texts.

    The right path is the principal chain, or off it at any depth, or broken off. The drafter asks for `taps`
    of the model, and keeps what it is fed in `states` by slot.
    """

    def __init__(self, answers: Sequence[tuple[int, ...]], *, taps: tuple[int, ...] = ()) -> None:
        self.taps, self._answers = taps, answers
        self.states: dict[int, list[torch.Tensor]] = {}
        self.texts: dict[tuple[int, ...], torch.Tensor] = {}
        self.asked: list[int] = []

    def admit(self, slot: int, request: Request) -> None:
        self.states[slot] = []

    def feed(self, parts: Sequence[Any]) -> None:
        for part in parts:
            held = self.states[part.slot][: part.start]
            self.states[part.slot] = [*held, *torch.stack(part.states, 1).clone()]
            if len(self.states[part.slot]) == part.end:
                self.texts[tuple(part.tokens[: part.end])] = torch.stack(self.states[part.slot])

    def propose(self, asks: Sequence[DraftAsk]) -> list[Sequence[int]]:
        self.asked += [ask.nodes for ask in asks]
        return [self._tree(ask) for ask in asks]

    def _tree(self, ask: DraftAsk) -> DraftTree:
        text = tuple(ask.tokens)
        known = [whole[len(text) :] for whole in self._answers if whole[: len(text)] == text]
        right = known[0] if known else ()
        draw = Random(len(text))
        tokens, parents, on_path = list[int](), list[int](), -1
        for depth in range(draw.choice((1, 2, 3, 5, 8))):
            children = draw.sample(range(97, 123), draw.choice((0, 1, 2)))
            level = [token for token in children if depth >= len(right) or token != right[depth]]
            place = draw.randrange(len(level) + 1)
            if depth < len(right) and draw.random() < 0.9:
                level.insert(place, right[depth])
            if not level:
                break
            first, kept = len(tokens), on_path
            for token in level:
                tokens.append(token)
                parents.append(kept)
                if depth < len(right) and token == right[depth]:
                    on_path = len(tokens) - 1
            if on_path == kept:  # a wrong path goes on
                on_path = first
                right = right[: depth + 1]
            if draw.random() < 0.4:  # below a child that may be wrong
                tokens.append(draw.randrange(97, 123))
                parents.append(first)
                if (parents[-1], tokens[-1]) in list(zip(parents, tokens, strict=True))[:-1]:
                    del tokens[-1], parents[-1]
        return DraftTree(tuple(tokens), tuple(parents))


def run(requests: Sequence[Request], *, kind: str = "full", **options: Any) -> tuple[Any, Any]:
    """The ids and the ends of requests by (request, sample)."""
    ticks = count()
    on = engine(
        runner=options.pop("runner", None) or runner(kind), clock=lambda: float(next(ticks)), **options
    )
    events = events_of(requests, on=on)
    return ids_of(events), ends_of(events)


def branched(requests: Sequence[Request], nodes: int = NODES) -> list[Request]:
    shape = DynamicTree(nodes, nodes, nodes)
    return [replace(one, drafting=replace(one.drafting, tree=shape)) for one in requests]


def compared(
    requests: Sequence[Request], *, nodes: int = NODES, make: Any = Branching, **options: Any
) -> tuple[Mapping[Any, Any], Mapping[Any, Any], Branching]:
    """The ends of requests without drafts and with trees, whose texts are equal, and the drafter."""
    plain = [replace(one, drafting=Drafting("none"), jump="off") for one in requests]
    ids, ends = run(plain, **options)
    by_id = {one.id: one for one in requests}
    drafter = make([(*by_id[key[0]].prompt_ids, *tokens) for key, tokens in ids.items()])
    other_ids, other_ends = run(branched(requests, nodes), drafter=drafter, **options)
    assert other_ids == ids
    assert {key: (end.text, end.reason) for key, end in other_ends.items()} == {
        key: (end.text, end.reason) for key, end in ends.items()
    }
    return ends, other_ends, drafter
