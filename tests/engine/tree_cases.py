"""Drafts that branch, made by hand for texts that are known, for the tests of trees in the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count
from random import Random
from typing import Any

import torch
import transformers as hf

from gencli.core.events import Token
from gencli.core.request import Drafting, Request, StepPlan
from gencli.core.tree_shapes import DynamicTree
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.other_runners import FakeRunner
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


def runner(kind: str = "full") -> DecoderRunner | Forest:
    return Forest() if kind == "fake" else DecoderRunner(decoder(kind), max_lanes=16)


class Forest(FakeRunner):
    """The fake model, which takes trees: logits depend on the last token alone."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._spec = replace(self._spec, trees=True)
        self.plans: list[StepPlan] = []

    def forward(self, plan: StepPlan) -> torch.Tensor:
        self.plans.append(plan)
        return super().forward(plan)

    def compact(self, lane: int, start: int, nodes: Sequence[int]) -> None:
        assert [*nodes] == sorted(nodes)
        self.truncate(lane, start + 1 + len(nodes))


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


def run(
    requests: Sequence[Request], *, kind: str = "full", make: Callable[[], Any] | None = None, **options: Any
) -> Run:
    """The events of requests on a model of a kind, or one that is made."""
    ticks, model = count(), make() if make else runner(kind)
    on = engine(runner=model, clock=lambda: float(next(ticks)), **options)
    return Run(events_of(requests, on=on), model)


@dataclass(frozen=True)
class Run:
    """The events of a run, and its model. Ids and ends are by (request, sample)."""

    events: list[Any]
    model: Any

    @property
    def ids(self) -> dict[tuple[str, int], tuple[int, ...]]:
        return ids_of(self.events)

    @property
    def ends(self) -> dict[tuple[str, int], Any]:
        return ends_of(self.events)

    def of_tokens(self, name: str) -> dict[tuple[str, int], list[Any]]:
        """What the events of tokens have under a name, by (request, sample)."""
        found: dict[tuple[str, int], list[Any]] = {}
        for event in self.events:
            if isinstance(event, Token):
                found.setdefault((event.request, event.sample), []).extend(getattr(event, name))
        return found

    @property
    def accepted(self) -> int:
        return sum(sum(end.drafted.accepted) for end in self.ends.values() if end.drafted)

    @property
    def nodes(self) -> int:
        return sum(end.drafted.nodes for end in self.ends.values() if end.drafted)


def branched(requests: Sequence[Request], nodes: int = NODES) -> list[Request]:
    shape = DynamicTree(nodes, nodes, nodes)
    return [replace(one, drafting=replace(one.drafting, tree=shape)) for one in requests]


def compared(
    requests: Sequence[Request], *, nodes: int = NODES, taps: tuple[int, ...] = (), **options: Any
) -> tuple[Run, Run, Branching]:
    """Runs without drafts and with trees, whose texts are equal, and the drafter."""
    plain = run([replace(one, drafting=Drafting("none"), jump="off") for one in requests], **options)
    prompts = {one.id: one.prompt_ids for one in requests}
    drafter = Branching([(*prompts[key[0]], *tokens) for key, tokens in plain.ids.items()], taps=taps)
    other = run(branched(requests, nodes), drafter=drafter, **options)
    assert other.ids == plain.ids
    texts = [{key: (end.text, end.reason) for key, end in each.ends.items()} for each in (plain, other)]
    assert texts[0] == texts[1]
    return plain, other, drafter
