"""Predicted decode steps on GPUs, from bytes, launches and the table of GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from choice_work import choice_work
from gpu_work import GpuWork

from gencli.cli.commands.bench import figure
from gencli.models.gpus import Gpu


@dataclass(frozen=True, slots=True)
class GpuCost:
    """Predicted and measured time of one part of a decode step on a GPU; None where it is not known."""

    part: str = figure("card, kernel, chain, rejection, layer, product or step")
    what: str = figure("the figure, kernel, chain, part of a layer or model")
    how: str = figure("launched by a graph, or eagerly; options of steps")
    rows: int | None = figure("rows of logits or of a product, or texts side by side")
    width: int | None = figure("token ids of a row, or outputs of a part")
    predicted_us: float | None = figure("predicted microseconds", 1)
    measured_us: float | None = figure("measured microseconds, the median", 1, None)
    gb_per_s: float | None = figure("measured: bytes that have to be read / time", 0, None)
    predicted_share: float | None = figure("% of the read bandwidth, predicted", 0, None)
    measured_share: float | None = figure("% of the read bandwidth, measured", 0, None)
    predicted_rate: float | None = figure("tokens/s of all rows, predicted", 0, None)
    measured_rate: float | None = figure("tokens/s of all rows, measured", 0, None)
    passes: float | None = figure("measured_us / that of torch.logsumexp", 2, None)


Weights = Literal["bf16", "int8", "int4"]
FORMATS: tuple[Weights, ...] = ("bf16", "int8", "int4")
# Bytes of a weight, with the scale and zero of a group of 32 inputs for int4.
BYTES = {"bf16": 2.0, "int8": 1.0, "int4": 0.5 + 4 / 32}
# Fraction of the read bandwidth reached by products with such weights, as gpt-fast reports for an A100: 1397,
# 1069 and 863 GB/s for a 7B model.
REACH = {"bf16": 1.0, "int8": 0.75, "int4": 0.65}

# Launches as counted on the sham device, and our kernels among them: of a layer (4 products, 2 norms, rotary,
# 2 of the attention, the activation), around the layers. The chain: temperature, top-k, top-p, min-p, draw.
_LAYER, _OWN_OF_LAYER = 10, 6
_AROUND = 7


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a decoder; `is_tied`: the vocabulary projection is tied to the embeddings."""

    name: str
    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    is_tied: bool

    @property
    def layer_weights(self) -> int:
        """The weights of a layer's products."""
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.inner

    @property
    def head_weights(self) -> int:
        """The weights of the vocabulary projection."""
        return self.hidden * self.vocab

    @property
    def token_bytes(self) -> int:
        """The bytes of the keys and values of a token, in 16 bits."""
        return self.layers * 2 * self.kv_heads * self.head_dim * 2

    def config(self) -> dict[str, object]:
        """Return config.json of a Llama of the shape."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "hidden_size": self.hidden,
            "intermediate_size": self.inner,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocab,
            "tie_word_embeddings": self.is_tied,
            "max_position_embeddings": 8192,
            "rms_norm_eps": 1e-5,
            "rope_theta": 500000.0,
            "hidden_act": "silu",
        }


_ALL = (
    Shape("1B", 16, 2048, 8192, 32, 8, 64, 128_256, True),  # Llama 3.2
    Shape("8B", 32, 4096, 14_336, 32, 8, 128, 128_256, False),  # Llama 3.1
)
SHAPES = {shape.name: shape for shape in _ALL}


def step_work(shape: Shape, weights: Weights, rows: int, keys: int) -> GpuWork:
    """Return the work of a decode step of `rows` texts with `keys` tokens each, with a chain and its draw.

    With int4 weights the head has eight bits. Weights of products that reach a fraction of the read bandwidth
    are counted with their bytes divided by this fraction.
    """
    inside = shape.layers * shape.layer_weights * BYTES[weights] / REACH[weights]
    of_head = _head_format(weights)
    head = shape.head_weights * BYTES[of_head] / REACH[of_head]
    kv = rows * keys * shape.token_bytes
    chain = choice_work("cut", rows, shape.vocab)
    return GpuWork(
        inside + head + kv + sum(one.bytes for one in chain),
        kernels=shape.layers * _LAYER + _AROUND + len(chain),
        own=shape.layers * _OWN_OF_LAYER + len(chain),
        alone=sum(one.alone for one in chain),
        flops=2.0 * rows * (shape.layers * shape.layer_weights + shape.head_weights),
    )


def step_bytes(shape: Shape, weights: Weights, rows: int, keys: int) -> float:
    """Return the bytes of weights, keys and values that a step has to read."""
    head = shape.head_weights * BYTES[_head_format(weights)]
    return shape.layers * shape.layer_weights * BYTES[weights] + head + rows * keys * shape.token_bytes


def _head_format(weights: Weights) -> Weights:
    return "int8" if weights == "int4" else weights


def predict_steps(gpu: Gpu, shapes: Sequence[Shape], counts: Sequence[int], keys: int) -> Iterator[GpuCost]:
    """Yield the predicted decode steps by shape, number format and rows, with and without a graph."""
    for shape in shapes:
        for weights in FORMATS:
            for rows in counts:
                for is_graph in (True, False):
                    yield predicted_step(gpu, shape, weights, rows, keys, is_graph=is_graph)


def predicted_step(
    gpu: Gpu, shape: Shape, weights: Weights, rows: int, keys: int, *, is_graph: bool
) -> GpuCost:
    """Return the predicted time of a decode step of `rows` texts with `keys` tokens each, in microseconds.

    The shares are percent of the read bandwidth, the rates tokens of all rows per second.
    """
    seconds = step_work(shape, weights, rows, keys).seconds(gpu, is_graph=is_graph)
    least = step_bytes(shape, weights, rows, keys) / gpu.read
    return GpuCost(
        part="step",
        what=f"{shape.name} {weights}",
        how="graphs" if is_graph else "eager",
        rows=rows,
        width=shape.vocab,
        predicted_us=seconds * 1e6,
        predicted_share=100 * least / seconds,
        predicted_rate=rows / seconds,
    )
