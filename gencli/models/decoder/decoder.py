"""The decoder: embedding, layers, final norm and vocabulary projection."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from queue import SimpleQueue

import torch
from torch import Tensor

from gencli.models.decoder.attention import AttentionPlan, DevicePlan
from gencli.models.decoder.embeddings import Embeddings
from gencli.models.decoder.layers import Layer, Pass, read_layer, read_norm
from gencli.models.decoder.norms import Norm
from gencli.models.decoder.products.base import Product
from gencli.models.decoder.products.maker import HEAD, ProductMaker
from gencli.models.decoder.reader import WeightReader
from gencli.models.decoder.readers import open_weights
from gencli.models.decoder.rope import RopeTable
from gencli.models.decoder.spec import DecoderSpec
from gencli.models.files.checkpoint import Checkpoint
from gencli.models.free_memory import refusing_full
from gencli.models.watch import OnBytes, Sum

__all__ = ["Decoder", "Inside", "read_decoder"]


@dataclass(slots=True, eq=False)
class Inside:
    """States that a pass leaves for its caller.

    `early` gets the states [R, H] of the tokens with logits behind each layer that it names, by the number of
    layers before it: 0 is the embedding. `last` gets the states [S, H] of the tokens `places` [S] behind the
    final norm, if these are set.
    """

    early: dict[int, Tensor]
    places: Tensor | None = None
    last: Tensor | None = None


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder with its weights. `tables` has the rotary embedding of each rope of the spec."""

    spec: DecoderSpec
    embeddings: Embeddings
    layers: tuple[Layer, ...]
    norm: Norm
    head: Product
    tables: tuple[RopeTable, ...]

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of states and logits."""
        return self.embeddings.dtype

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.embeddings.device

    def first(self, count: int) -> Decoder:
        """Return the decoder of the first `count` layers, sharing all weights."""
        return replace(self, layers=self.layers[:count])

    def __call__(
        self,
        ids: Tensor,
        step: Pass[AttentionPlan] | Pass[DevicePlan],
        buffers: Sequence[Tensor],
        wanted: Tensor | None,
        inside: Inside | None = None,
    ) -> Tensor:
        """Return logits [R, V] of the tokens `wanted` [R] (None: all) among `ids` [N].

        `buffers` are the KV buffers of the layers, [rows, 2 * Hkv, capacity, D]: their first heads hold keys,
        the others values. `inside` gets states of the pass.
        """
        spec, early = self.spec, inside.early if inside else None
        states = self.embeddings(ids)
        if spec.embedding_scale != 1.0:
            states = states * torch.tensor(spec.embedding_scale, dtype=states.dtype)
        if isinstance(step.plan, DevicePlan):
            from gencli.models.decoder.fused import fused_layers

            states, last_states = fused_layers(
                self.layers,
                self.norm,
                states,
                step,
                buffers,
                wanted,
                early=early,
                places=inside.places if inside else None,
            )
            if inside:
                inside.last = last_states
        else:
            states = self._plain_layers(states, step, buffers, wanted, inside)
        logits = self.head(states)
        if spec.logit_divisor != 1.0:
            logits = logits / spec.logit_divisor
        if spec.logit_cap is not None:
            logits = (logits / spec.logit_cap).tanh_() * spec.logit_cap
        return logits

    def _plain_layers(
        self,
        states: Tensor,
        step: Pass[AttentionPlan],
        buffers: Sequence[Tensor],
        wanted: Tensor | None,
        inside: Inside | None,
    ) -> Tensor:
        """Return the states [R, H] of the tokens `wanted` [R] behind the final norm."""
        early = inside.early if inside else None
        *first, last = zip(self.layers, buffers, strict=True)
        for number, (layer, buffer) in enumerate(first):
            if early and number in early:
                early[number] = states if wanted is None else states[wanted]
            states = layer(states, buffer, step)
        if early and len(first) in early:
            early[len(first)] = states if wanted is None else states[wanted]
        layer, buffer = last
        if inside and inside.places is not None:
            states = self.norm(layer(states, buffer, step))
            inside.last = states[inside.places]
            return states if wanted is None else states[wanted]
        # The other tokens leave keys and values only.
        return self.norm(layer(states, buffer, step, wanted))


def read_decoder(
    checkpoint: Checkpoint,
    *,
    make: ProductMaker,
    dtype: torch.dtype,
    device: torch.device,
    on_bytes: OnBytes | None = None,
    workers: int = 1,
) -> tuple[Decoder, list[str]]:
    """Load the decoder of a checkpoint (its `spec`) with products by `make`.

    So many `workers` read and make layers side by side, each on one thread. Returns the decoder and the
    names of tensors that it does not use. Raises ModelError for a damaged file, an absent tensor or one of
    another shape, and for a device with too little memory.
    """
    spec = checkpoint.spec
    assert spec is not None
    told = Sum(on_bytes) if on_bytes else None
    with refusing_full(device), ExitStack() as stack:
        readers = [
            stack.enter_context(open_weights(checkpoint, dtype, device, told.part() if told else None))
            for _ in range(workers)
        ]
        reader = readers[0]
        embeddings, head = make.read_ends(reader, (spec.vocab_size, spec.hidden), is_tied=spec.is_tied)
        layers = _read_layers(spec, readers, make)
        norm = read_norm(spec, reader, "model.norm", spec.hidden)
        unread = set.intersection(*(one.unread for one in readers)) - ({HEAD} if spec.is_tied else set())
        tables = tuple(RopeTable(rope, dtype, device) for rope in spec.ropes)
        made = Decoder(spec, embeddings, layers, norm, head, tables)
        return made, sorted(name for name in unread if not name.endswith("rotary_emb.inv_freq"))


def _read_layers(spec: DecoderSpec, readers: Sequence[WeightReader], make: ProductMaker) -> tuple[Layer, ...]:
    """Return the layers, read by as many threads as there are readers."""
    if len(readers) == 1:
        return tuple(read_layer(spec, readers[0], make, index) for index in range(spec.num_layers))
    idle: SimpleQueue[WeightReader] = SimpleQueue()
    for reader in readers:
        idle.put(reader)

    def read(index: int) -> Layer:
        reader = idle.get()
        try:
            return read_layer(spec, reader, make, index)
        finally:
            idle.put(reader)

    with _workers(len(readers)) as pool:
        return tuple(pool.map(read, range(spec.num_layers)))


@contextmanager
def _workers(count: int) -> Iterator[ThreadPoolExecutor]:
    """Run threads that compute on one thread each. Two matrices side by side wait less than one by two."""
    before = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(before)  # the threads have set the number of later ones too
