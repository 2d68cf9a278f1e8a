"""Trained draft heads: EAGLE-1 (arXiv 2401.15077; EAGLE-2, 2406.16858, has the same weights), EAGLE-3
(2503.01840), layers for multi-token prediction (MTP, 2404.19737 and 2412.19437) and Medusa (2401.10774); and
the reader of all kinds, also of those in block_heads.py.

A head reads hidden states of the target. Of each token they are condensed to a feature once. An entry of a
head pairs the feature of a token with the token behind it; from an entry come logits of the next token, and
the feature that stands for that token's until the target has computed it. Layers are the decoder's own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from gencli.models.decoder.attention_plans import AttentionPlan, FusedPlan
from gencli.models.decoder.decoder_layers import (
    DecoderLayer,
    HeldEmbeddings,
    Inside,
    Pass,
    read_layer,
    read_norm,
)
from gencli.models.decoder.families import DecoderSpec
from gencli.models.decoder.kernels.layer_kernels import Norm
from gencli.models.decoder.kernels.llvm_code import missing
from gencli.models.decoder.products.dense_products import Float32Head, Product, adds_wide
from gencli.models.decoder.products.product_maker import (
    EMBEDDINGS,
    HEAD,
    KernelOptions,
    ProductMaker,
    QuantizedMaker,
    choose_kernels,
)
from gencli.models.decoder.weight_readers import WeightReader, stays_in_file
from gencli.models.model_runner import LAST, HeadedRunner
from gencli.models.rope import RopeTable
from gencli.speculative.block_heads import BlockHead, MarkovHead
from gencli.speculative.head_files import (
    BlockConfig,
    Eagle1Config,
    Eagle3Config,
    HeadFile,
    MedusaConfig,
    MtpConfig,
)

Map = Callable[[Tensor], Tensor]
_ROWS = 4096  # of embeddings that are compared at once


@dataclass(slots=True, eq=False, kw_only=True)
class FeaturePass(Inside):
    """A pass over N entries of a head with the features [N, width] of their tokens.

    `made` gets the features of the next tokens [R, width], those behind the wanted entries; with `makes_all`
    those behind all.
    """

    features: Tensor
    makes_all: bool = False
    made: Tensor | None = None


@dataclass(frozen=True, slots=True)
class HeadPart(ABC):
    """Layers of a head over KV buffers, with what comes before and behind them: see CachedLayers.

    `embed` gives embeddings of token ids, `project` logits [R, V] of the target's V tokens.
    """

    spec: DecoderSpec
    layers: tuple[DecoderLayer, ...]
    tables: tuple[RopeTable, ...]
    embed: Map
    project: Map
    dtype: torch.dtype
    device: torch.device

    def __call__(
        self,
        ids: Tensor,
        step: Pass[AttentionPlan] | Pass[FusedPlan],
        buffers: Sequence[Tensor],
        wanted: Tensor | None,
        inside: Inside | None = None,
    ) -> Tensor:
        """Return logits [R, V] of the entries `wanted` [R] (None: all) with the tokens `ids` [N]."""
        assert isinstance(inside, FeaturePass)
        states, read = self._entered(self.embed(ids), inside.features)
        kept = None if inside.makes_all else wanted
        for number, (layer, buffer) in enumerate(zip(self.layers, buffers, strict=True)):
            is_last = number == len(self.layers) - 1
            states = layer(states, buffer, step, kept if is_last else None, None if number else read)
        inside.made, states = self._left(states)
        return self.project(states if wanted is None or kept is wanted else states[wanted])

    @abstractmethod
    def _entered(self, embeddings: Tensor, features: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the states [N, H] before the first layer, and what its attention reads in their place."""

    @abstractmethod
    def _left(self, states: Tensor) -> tuple[Tensor, Tensor]:
        """Return the next features and what the vocabulary projection reads, for states behind the layers."""


@dataclass(frozen=True, slots=True)
class FusedPart(HeadPart):
    """The layers of EAGLE-1, or a layer of MTP.

    x = fc([embed_norm(embedding), feature_norm(feature)]), or with both changed over if `feature_first`;
    u = norm(layers(x)); logits of u; the next feature is u, or the state before the norm unless `feeds_norm`.
    Norms that are None are left out.
    """

    fc: Product
    embed_norm: Norm | None = None
    feature_norm: Norm | None = None
    norm: Norm | None = None
    feature_first: bool = False
    feeds_norm: bool = True

    def _entered(self, embeddings: Tensor, features: Tensor) -> tuple[Tensor, Tensor | None]:
        first = embeddings if self.embed_norm is None else self.embed_norm(embeddings)
        second = features if self.feature_norm is None else self.feature_norm(features)
        return self.fc(torch.cat((second, first) if self.feature_first else (first, second), -1)), None

    def _left(self, states: Tensor) -> tuple[Tensor, Tensor]:
        normed = states if self.norm is None else self.norm(states)
        return normed if self.feeds_norm else states, normed


@dataclass(frozen=True, slots=True)
class Eagle3Part(HeadPart):
    """The layers of EAGLE-3, of which the first one's attention reads [embed_norm(embedding), n], 2H wide.

    n = feature_norm(feature); the residual is the feature or, with `norm_before_residual`, n;
    u = layers; logits of norm(u); the next feature is u or, with `feeds_norm`, norm(u).
    """

    embed_norm: Norm
    feature_norm: Norm
    norm: Norm
    norm_before_residual: bool
    feeds_norm: bool

    def _entered(self, embeddings: Tensor, features: Tensor) -> tuple[Tensor, Tensor | None]:
        normed = self.feature_norm(features)
        read = torch.cat((self.embed_norm(embeddings), normed), -1)
        return normed if self.norm_before_residual else features, read

    def _left(self, states: Tensor) -> tuple[Tensor, Tensor]:
        normed = self.norm(states)
        return normed if self.feeds_norm else states, normed


@dataclass(frozen=True, slots=True)
class TapMix:
    """The feature of EAGLE-3: fc of the taps side by side, with one norm before it, or one for each tap.

    That of DFlash has a norm behind fc.
    """

    fc: Product
    joint_norm: Norm | None = None
    tap_norms: tuple[Norm, ...] = ()
    out_norm: Norm | None = None

    def __call__(self, states: tuple[Tensor, ...]) -> Tensor:
        """Return the features [N, width] of tokens, for states [N, H] of each tap."""
        if self.tap_norms:
            states = tuple(norm(part) for norm, part in zip(self.tap_norms, states, strict=True))
        joined = torch.cat(states, -1)
        mixed = self.fc(joined if self.joint_norm is None else self.joint_norm(joined))
        return mixed if self.out_norm is None else self.out_norm(mixed)


@dataclass(frozen=True, slots=True)
class DraftVocabulary:
    """A vocabulary projection: logits [R, V], minus infinity for tokens that are not among `ids` [Vd]."""

    product: Map
    vocab_size: int
    ids: Tensor | None = None
    scale: float = 1.0

    def __call__(self, states: Tensor) -> Tensor:
        return self.spread(self.narrow(states))

    def narrow(self, states: Tensor) -> Tensor:
        """Return the logits [R, Vd] of the draft vocabulary."""
        logits = self.product(states)
        return logits if self.scale == 1.0 else logits * self.scale

    def spread(self, logits: Tensor) -> Tensor:
        """Return logits [R, Vd] of the draft vocabulary as those of all tokens [R, V]."""
        if self.ids is None:
            return logits
        wide = logits.new_full((len(logits), self.vocab_size), -torch.inf)
        return wide.index_copy_(1, self.ids, logits)


@dataclass(frozen=True, slots=True)
class RecursiveHead:
    """A head that drafts from its own output: EAGLE-1, EAGLE-3, MTP.

    It has one part for all drafts, or one for each: part k pairs the output of part k - 1 for a token with
    the token k + 1 places behind that. `taps` are the states that it reads, `width` is that of features.
    `mix` condenses several states. With `is_invariant` a row has the same bits among any other rows.
    """

    taps: tuple[int, ...]
    width: int
    vocab_size: int
    parts: tuple[HeadPart, ...]
    mix: TapMix | None = None
    is_invariant: bool = False

    @property
    def most(self) -> int | None:
        """The most drafts of a step; None: no bound."""
        return len(self.parts) if len(self.parts) > 1 else None

    def condense(self, states: tuple[Tensor, ...]) -> Tensor:
        """Return the features [N, width] of tokens, for states [N, H] of each tap."""
        return states[0] if self.mix is None else self.mix(states)


@dataclass(frozen=True, slots=True)
class MedusaHead:
    """Medusa: draft j comes from the newest state alone: x + silu(linear(x)) in each block, then logits."""

    blocks: tuple[tuple[Product, ...], ...]
    projections: tuple[Map, ...]
    vocab_size: int
    taps: tuple[int, ...] = (LAST,)

    def __call__(self, draft: int, states: Tensor) -> Tensor:
        """Return logits [R, V] of draft `draft` for the newest states [R, H] of texts."""
        for block in self.blocks[draft]:
            states = states + torch.nn.functional.silu(block(states))
        return self.projections[draft](states)


Head = RecursiveHead | MedusaHead | BlockHead


_MIN_ROUNDED = 2**23  # numbers of a head; smaller ones stay in the caches of a CPU


def read_head(file: HeadFile, target: HeadedRunner) -> Head:
    """Return the head of a file for a target, in the format and on the device of the target's states.

    On a CPU with compiled kernels the matrices of a large head have 8 bits: drafts are only proposals, and
    each pass of a head takes about as long as reading its weights. Raises ModelError for an absent tensor, or
    one of another shape.
    """
    dtype, device = target.spec.dtype, target.spec.device
    make = choose_kernels(Counter(), dtype, device, KernelOptions())
    is_large = sum(stored.count for stored in file.tensors.values()) >= _MIN_ROUNDED
    if is_large and device.type == "cpu" and dtype == torch.float32 and missing() is None:
        make = QuantizedMaker(make.default, head=make.head, bits=8)
    with file.reader(dtype, device) as reader:
        parts = _PartReader(file, reader, make, target)
        if isinstance(file.config, Eagle1Config):
            return parts.eagle1(file.config)
        if isinstance(file.config, Eagle3Config):
            return parts.eagle3(file.config)
        if isinstance(file.config, MtpConfig):
            return parts.mtp(file.config)
        if isinstance(file.config, BlockConfig):
            return parts.block(file.config)
        return parts.medusa(file.config)


@dataclass(frozen=True, slots=True)
class _PartReader:
    """Reads the parts of a head; what the file leaves out is the target's."""

    file: HeadFile
    reader: WeightReader
    make: ProductMaker
    target: HeadedRunner

    def eagle1(self, config: Eagle1Config) -> RecursiveHead:
        spec = config.spec
        biases = ["fc.bias"] if config.has_bias else []
        fc = self.make.read(self.reader, ["fc.weight"], (spec.hidden, 2 * spec.hidden), biases)
        part = FusedPart(**self._ends(spec), layers=self._layers(spec, spec.hidden), fc=fc)
        return self._recursive(spec, part)

    def eagle3(self, config: Eagle3Config) -> RecursiveHead:
        spec, mix = config.spec, None
        embed_norm = self._norm(spec, "model.layers.0.input_layernorm", spec.hidden)
        feature_norm = self._norm(spec, "model.layers.0.hidden_norm", spec.hidden)
        if config.has_fc:
            width = len(config.taps) * config.target_hidden
            fc = self.make.read(self.reader, ["fc.weight"], (spec.hidden, width))
            joint = self._norm(spec, "input_norm", width) if config.norm_before_fc else None
            names = [f"fc_norm.{i}" for i in range(len(config.taps))] if config.fc_norm else []
            mix = TapMix(fc, joint, tuple(self._norm(spec, name, config.target_hidden) for name in names))
        part = Eagle3Part(
            **self._ends(spec) | {"project": self._projection(spec, config.draft_vocab, config.logit_scale)},
            layers=self._layers(spec, 2 * spec.hidden),
            embed_norm=embed_norm,
            feature_norm=feature_norm,
            norm=self._norm(spec, "model.norm", spec.hidden),
            norm_before_residual=config.norm_before_residual,
            feeds_norm=config.norm_output,
        )
        return replace(self._recursive(spec, part), taps=config.taps, mix=mix)

    def mtp(self, config: MtpConfig) -> RecursiveHead:
        spec, parts = config.spec, list[HeadPart]()
        ends = self._ends(spec)
        for index in range(spec.num_layers):
            norms = (f"mtp.{index}.{name}" for name in ("embed_norm", "hidden_norm", "norm"))
            embed_norm, feature_norm, norm = (self._norm(spec, name, spec.hidden) for name in norms)
            parts.append(
                FusedPart(
                    **ends,
                    layers=(read_layer(spec, self.reader, self.make, index),),
                    fc=self.make.read(
                        self.reader, [f"mtp.{index}.fc.weight"], (spec.hidden, 2 * spec.hidden)
                    ),
                    embed_norm=embed_norm,
                    feature_norm=feature_norm,
                    norm=norm,
                    feature_first=config.hidden_first,
                )
            )
        return self._recursive(spec, *parts)

    def block(self, config: BlockConfig) -> BlockHead:
        spec, make, reader = config.spec, self.make, self.reader
        width = len(config.taps) * config.target_hidden
        fc = make.read(reader, ["fc.weight"], (spec.hidden, width))
        mix = TapMix(fc, out_norm=self._norm(spec, "hidden_norm", spec.hidden))
        vocabulary = self._projection(spec, config.draft_vocab)
        return BlockHead(
            **self._ends(spec) | {"project": vocabulary.narrow},
            taps=config.taps,
            layers=tuple([read_layer(spec, reader, make, index) for index in range(spec.num_layers)]),
            condense=mix,
            norm=self._norm(spec, "model.norm", spec.hidden),
            spread=vocabulary.spread,
            vocab_size=self.file.vocab_size,
            block_size=config.block_size,
            mask_id=config.mask_id,
            samples_anchor=config.samples_anchor,
            is_causal=config.is_causal,
            markov=self._markov(config),
        )

    def _markov(self, config: BlockConfig) -> MarkovHead | None:
        """Return the Markov head of DSpark."""
        if (kind := config.markov) is None:
            return None
        rank, hidden, mix = config.markov_rank, config.spec.hidden, None
        mixes = {
            "gated": ("gate_proj", (rank, hidden + rank)),
            "rnn": ("joint_proj", (3 * rank, 2 * rank + hidden)),
        }
        if kind in mixes:
            name, shape = mixes[kind]
            names = [f"markov_head.{name}.{part}" for part in ("weight", "bias")]
            mix = self.make.read(self.reader, names[:1], shape, names[1:])
        before = self.reader.read("markov_head.markov_w1.weight", (self.file.vocab_size, rank))
        after = self.reader.read("markov_head.markov_w2.weight", (config.draft_vocab, rank))
        return MarkovHead(kind, HeldEmbeddings(before), self._wide(after), rank, mix)

    def medusa(self, config: MedusaConfig) -> MedusaHead:
        size, ids = self.file.vocab_size, self._token_ids()

        def projection(name: str) -> Map:
            weight = self.reader.read(name, (config.rows, self.target.spec.hidden))
            if ids is not None and config.draft_vocab < config.rows:
                weight = weight[ids]
            return DraftVocabulary(self._wide(weight), size, ids)

        if config.has_shared_head:
            projections = (projection(HEAD),) * config.num_heads
        else:
            projections = tuple([projection(f"heads.{head}.weight") for head in range(config.num_heads)])
        blocks = [
            tuple([self._block(f"blocks.{head}.{layer}", config) for layer in range(config.num_layers)])
            for head in range(config.num_heads)
        ]
        return MedusaHead(tuple(blocks), projections, size)

    def _block(self, name: str, config: MedusaConfig) -> Product:
        biases = [f"{name}.bias"] if config.has_bias else []
        hidden = self.target.spec.hidden
        return self.make.read(self.reader, [f"{name}.weight"], (hidden, hidden), biases)

    def _recursive(self, spec: DecoderSpec, *parts: HeadPart) -> RecursiveHead:
        is_invariant = self.make.is_invariant
        return RecursiveHead((LAST,), spec.hidden, self.file.vocab_size, parts, is_invariant=is_invariant)

    def _ends(self, spec: DecoderSpec) -> dict[str, Any]:
        """Return the fields that all kinds of parts share, but for the layers."""
        dtype, device = self.reader.dtype, self.reader.device
        tables = tuple([RopeTable(rope, dtype, device) for rope in spec.ropes])
        return {
            "spec": spec,
            "tables": tables,
            "embed": self._embedding((spec.vocab_size, spec.hidden)),
            "project": self.target.project,
            "dtype": dtype,
            "device": device,
        }

    def _embedding(self, shape: tuple[int, int]) -> Map:
        """Return the embeddings: the target's, if there are no others. Published heads often have a copy."""
        reader, target = self.reader, self.target
        if EMBEDDINGS not in reader:
            return target.embed
        if stays_in_file(math.prod(shape) * reader.dtype.itemsize, reader.device):
            return reader.embeddings(EMBEDDINGS, shape)
        weight = reader.read(EMBEDDINGS, shape)
        ids, is_copy = torch.arange(len(weight), device=reader.device), shape[1] == target.spec.hidden
        for some, part in zip(torch.split(ids, _ROWS), torch.split(weight, _ROWS), strict=True):
            is_copy = is_copy and torch.equal(target.embed(some), part)
        return target.embed if is_copy else HeldEmbeddings(weight)

    def _layers(self, spec: DecoderSpec, inputs: int) -> tuple[DecoderLayer, ...]:
        """Return the layers of EAGLE. The first one reads `inputs` numbers of a token, and norms none."""
        bare = replace(spec, names=replace(spec.names, attention_norm=None))
        first = read_layer(bare, self.reader, self.make, 0, inputs=inputs)
        rest = range(1, spec.num_layers)
        return (first, *[read_layer(spec, self.reader, self.make, index) for index in rest])

    def _projection(self, spec: DecoderSpec, draft_vocab: int, scale: float = 1.0) -> DraftVocabulary:
        """Return the vocabulary projection of a head: its own, its embedding, or that of the target."""
        project: Map = self.target.project
        name = HEAD if HEAD in self.reader else EMBEDDINGS
        if name in self.reader and (name == HEAD or spec.is_tied):
            project = self._wide(self.reader.read(name, (draft_vocab, spec.hidden)))
        return DraftVocabulary(project, self.file.vocab_size, self._token_ids(), scale)

    def _token_ids(self) -> Tensor | None:
        """Return the target's ids of the draft vocabulary; None if all are in order."""
        ids = self.file.token_ids(self.reader)
        is_whole = ids is not None and len(ids) == self.file.vocab_size and bool((ids.diff() == 1).all())
        return None if is_whole else ids

    def _wide(self, weight: Tensor) -> Product:
        """Return the vocabulary projection with a weight [Vd, H], whose logits are float32."""
        if isinstance(self.make, QuantizedMaker):
            return self.make.rounded(weight)
        if adds_wide(weight.dtype, weight.device):
            return Float32Head(self.make(weight))
        return Float32Head(self.make.head(weight.float())) if weight.itemsize == 2 else self.make(weight)

    def _norm(self, spec: DecoderSpec, name: str, width: int) -> Norm:
        return read_norm(spec, self.reader, name, width)
