"""Products on CUDA with narrow weights: values by the interpreter, and the weights are those of the CPU."""

from itertools import product
from pathlib import Path

import pytest
import torch

from gencli.models.decoder.products.coded_weights import GROUP, Int4Weights, Int8Weights
from gencli.models.decoder.products.dense_products import counters_of, fixed_product_torch
from gencli.models.files.model_files import Quantize
from gencli.models.quantized_copy import quantize_model
from tests.interpreted import interpreted
from tests.models.cases import case
from tests.models.decoder.products.test_narrow import logits, matrix
from tests.models.native import load_native
from tests.models.tiny_models import build_native
from tests.sham import CUDA, sham_device

LAUNCH = "gencli.models.decoder.products.fixed_launch"


WHOLE = (40, 512)
SHAPES = [(7, 32), (130, 608), WHOLE]  # sums in one part, in two, and in two of whole tiles


def weights_of(bits: int, shape: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    """Codes, scales and zeros; in float32, as the interpreter has no bfloat16."""
    kind = Int8Weights if bits == 8 else Int4Weights
    codes, *rest = kind.of(shape, [matrix(*shape)]).tensors
    return codes, *(part.float() for part in rest)


def dense(codes: torch.Tensor, scales: torch.Tensor, *zeros: torch.Tensor) -> torch.Tensor:
    """The weights that the codes stand for, [out, in] float64."""
    if not zeros:
        return codes.double() * scales[:, None].double()
    steps = Int4Weights(codes, scales, zeros[0]).unpacked(slice(None)).double().unflatten(1, (-1, GROUP)) - 8
    return (steps * scales[..., None] + zeros[0][..., None]).flatten(1)


def test_the_kernel_multiplies_the_weights_of_the_cpu() -> None:
    for bits, shape in product([8, 4], SHAPES):
        with case(bits, shape):
            dtype = torch.float16
            codes, scales, *zeros = weights_of(bits, shape)
            bias, given = matrix(shape[0]).to(dtype), matrix(130, shape[1]).to(dtype)
            if shape == WHOLE:  # whole numbers, as the interpreter adds up a tile in an order of its own
                given.mul_(4).round_()
                scales, zeros = torch.ones_like(scales), [torch.zeros_like(one) for one in zeros]
            wide = dense(codes, scales, *zeros)
            size = given.double().abs() @ wide.abs().T + bias.double().abs()
            rest = (codes, scales, zeros[0] if zeros else None, bias, counters_of(codes))
            launch = interpreted(LAUNCH, "fixed_product_triton")
            for run in (launch, fixed_product_torch):
                whole = run(given, *rest)
                # A weight of four bits is rounded once to the format of the activations.
                bound = (torch.finfo(dtype).eps + shape[1] * 2.0**-23) * size
                assert ((whole.double() - (given.double() @ wide.T + bias)).abs() <= bound).all()
                for count in (1, 33):
                    assert torch.equal(run(given[:count], *rest), whole[:count])
                    sums = run(given[:count], *rest, True)
                    assert sums.dtype == torch.float32
                    assert torch.equal(sums.to(dtype), whole[:count])


@pytest.mark.parametrize(
    ("quantize", "kind"), [("int8", "llama"), ("int4", "qwen3_moe"), ("int4", "gpt_oss")]
)
def test_a_quantized_folder_has_the_logits_of_weights_quantized_at_loading(
    quantize: Quantize, kind: str, tmp_path: Path
) -> None:
    build_native(kind).save_pretrained(tmp_path / "wide")
    quantize_model(str(tmp_path / "wide"), tmp_path / "narrow", quantize)
    with sham_device():
        made = logits(load_native(tmp_path / "narrow", CUDA, dtype="float16"))
        assert torch.equal(
            made, logits(load_native(tmp_path / "wide", CUDA, quantize=quantize, dtype="float16"))
        )


@pytest.mark.parametrize(("quantize", "name"), [("int8", "fixed-int8"), ("int4", "fixed-int4")])
def test_a_model_has_the_same_weights_on_both_devices(quantize: Quantize, name: str, tmp_path: Path) -> None:
    build_native("llama").save_pretrained(tmp_path)
    expected = logits(load_native(tmp_path, "cpu", quantize=quantize))
    with sham_device():
        runner = load_native(tmp_path, CUDA, quantize=quantize, dtype="float16")
        made = logits(runner)
    assert name in runner.spec.kernels
    assert (runner.spec.dtype, made.dtype) == (torch.float16, torch.float32)
    # The CPU rounds activations to 8 bits, or to bfloat16, and random weights enlarge that.
    assert (made.float() - expected).norm() < 0.1 * expected.norm()
