"""Heads for a target that is only tensors; its states follow from the tokens before them, as a model's do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from gencli.core.request import Feed
from gencli.models.decoder.attention_plans import dense_keys
from gencli.models.decoder.products.dense_products import PackedProduct, PlainProduct, can_pack
from gencli.models.model_runner import LAST, ModelSpec
from gencli.speculative.drafter import DraftAsk, Features
from gencli.speculative.head_drafter import BlockLanes, HeadDrafter, HeadLanes
from gencli.speculative.head_files import HeadFile, open_head, open_mtp
from gencli.speculative.head_models import read_head
from tests.engine.harness import request
from tests.speculative.reference_heads import Reference, Target
from tests.speculative.tiny_heads import HEADS, Noise, Shape
from tests.speculative.tiny_targets import MTP as OWN_MTP
from tests.speculative.tiny_targets import tiny_mtp

SHAPE = Shape()
CONTEXT = 1024


class TensorTarget:
    """The ends of a target, and its states: state i at a tap is tanh(rows[token i] + mix @ state i - 1)."""

    def __init__(self, ends: Target | None = None, shape: Shape = SHAPE) -> None:
        noise = Noise(0)
        self.ends = ends or Target(
            noise.matrix(shape.vocab, shape.hidden, shape.hidden**0.5),
            noise.matrix(shape.vocab, shape.hidden),
        )
        taps = (LAST, *range(shape.layers + 1))
        self._project = (PackedProduct if can_pack() else PlainProduct)(self.ends.lm_head)
        self._rows = {tap: noise.matrix(shape.vocab, shape.hidden, shape.hidden**0.5) for tap in taps}
        self._mix = noise.matrix(shape.hidden, shape.hidden, 0.9)
        self.spec = ModelSpec(
            "tensors",
            shape.vocab,
            CONTEXT,
            torch.device("cpu"),
            torch.float32,
            num_layers=shape.layers,
            hidden=shape.hidden,
        )

    def embed(self, ids: Tensor) -> Tensor:
        return self.ends.embedding[ids]

    def project(self, states: Tensor) -> Tensor:
        return self._project(states)

    def states(self, tokens: Sequence[int], taps: Sequence[int]) -> dict[int, Tensor]:
        """The states [len(tokens), H] of a text at taps."""
        found = {}
        for tap in taps:
            state, rows = torch.zeros(self.spec.hidden), []
            for token in tokens:
                state = torch.tanh(self._rows[tap][token] + self._mix @ state)
                rows.append(state)
            found[tap] = torch.stack(rows)
        return found


MTP = dict(OWN_MTP)
MTP["deepseek llama of three layers"] = partial(tiny_mtp, layers=3)
KINDS = (*HEADS, *MTP)
# Of them one for each way to draft.
DRAFTING = (
    *("eagle1", "eagle3", "eagle3 of two layers", "medusa"),
    *("deepseek llama", "deepseek llama of three layers"),
    *("dflash", "dflash sliding", "dspark speculators"),
)


@dataclass
class Drafts:
    """A head of a kind with its reference. Its drafts are tokens that the caller names."""

    target: TensorTarget
    file: HeadFile
    reference: Reference
    drafter: HeadDrafter = field(init=False)

    def __post_init__(self) -> None:
        self.drafter = self.fresh()

    @classmethod
    def of(cls, kind: str, folder: Path) -> Drafts:
        if kind in MTP:
            own = MTP[kind](SHAPE)
            target, path = TensorTarget(own.target.shared), (own.head or own.target).write(folder / "head")
            file = open_mtp(str(path), target.spec) if own.head is None else open_head(str(path), target.spec)
            return cls(target, file, own.reference())
        target, head = TensorTarget(), HEADS[kind](SHAPE)
        file = open_head(str(head.write(folder / "head")), target.spec)
        reference = head.reference(target.ends)
        if file.kind == "eagle3":  # which states a head reads is told by its file
            reference.taps = file.config.taps
        return cls(target, file, reference)

    def fresh(self, max_lanes: int = 4) -> HeadDrafter:
        """Another drafter with the head."""
        return HeadDrafter(read_head(self.file, self.target), self.target.spec, max_lanes=max_lanes)

    @property
    def depth(self) -> int:
        """The most drafts of a step, at most 4."""
        return self.drafter._lanes.room(DraftAsk(0, range(9), 4))

    def feed(self, parts: Sequence[tuple[int, Sequence[int], int, int]]) -> None:
        """Feed states of texts: slot, text, start, end."""
        self.drafter.feed([self.features(*part) for part in parts])

    def features(self, slot: int, text: Sequence[int], start: int, end: int) -> Features:
        taps = self.drafter.taps
        states = self.target.states(text[:end], taps)
        return Features(slot, text, start, end, tuple(states[tap][start:] for tap in taps))

    def logits(self, asks: Mapping[int, tuple[Sequence[int], Sequence[int]]]) -> dict[int, Tensor]:
        """By slot the logits [1 + len(path), V] behind a text, where the drafts are the tokens of a path."""
        return logits_of(self.drafter, asks)

    def expected(self, text: Sequence[int], path: Sequence[int], base: int = 0) -> Tensor:
        """The reference's logits [1 + len(path), V], of a head that has the states from `base` on."""
        states = self.target.states(text[:-1], self.reference.taps)
        return self.reference.along(
            text[base:], {tap: rows[base:] for tap, rows in states.items()}, path
        ).float()


@torch.inference_mode()
def logits_of(
    drafter: HeadDrafter, asks: Mapping[int, tuple[Sequence[int], Sequence[int]]]
) -> dict[int, Tensor]:
    lanes, rows = drafter._lanes, dict[int, list[Tensor]]()
    able = lanes.catch_up([DraftAsk(slot, text, len(path) + 1) for slot, (text, path) in asks.items()])
    assert all(lanes.room(ask) == ask.most for ask in able)
    to_feed, depth = {ask.slot: lanes.missing(ask) for ask in able}, 0
    while to_feed:
        for slot, row in zip(to_feed, lanes.extend(to_feed), strict=True):
            rows.setdefault(slot, []).append(row)
        to_feed = {slot: (asks[slot][1][depth],) for slot in to_feed if depth < len(asks[slot][1])}
        depth += 1
    return {slot: torch.stack(found) for slot, found in rows.items()}


def held(lanes: HeadLanes | BlockLanes, slot: int, count: int) -> list[Tensor]:
    """Features, and keys and values of each layer, of the first `count` true entries of a slot.

    Of a head that drafts blocks, the keys and values of its context.
    """
    if isinstance(lanes, BlockLanes):
        store = lanes._features._store
        return [buffer.data[store._rows[slot], :, :count] for buffer in store.buffers]
    found = [lanes._features.read([Feed(slot, 0, (0,) * count)])]
    for number, part in enumerate(lanes._parts):
        store = part._lanes._store
        for buffer in part._lanes._buffers:
            row, length = store._rows[slot], count - number
            found += [
                dense_keys(buffer.data, row, 0, length)[0],
                buffer.data[row, buffer.data.shape[1] // 2 :, :length],
            ]
    return found


def admit(drafter: HeadDrafter, *slots: int) -> None:
    for slot in slots:
        drafter.admit(slot, request("x"))
