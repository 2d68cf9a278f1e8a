"""Weights of eight bits, and products with them.

Weights of four bits, and the product with them. Products on CUDA with narrow weights: values by the
interpreter, and the weights are those of the CPU.
"""

from itertools import product
from pathlib import Path

import pytest
import torch

from gencli.models.decoder.products.coded_weights import (
    GROUP,
    Int4Product,
    Int4Weights,
    QlinearProduct,
    row_kernels,
)
from gencli.models.decoder.products.dense_products import Product, counters_of, fixed_product_torch
from gencli.models.files.model_files import Quantize
from gencli.models.quantized_copy import quantize_model
from tests.interpreted import interpreted
from tests.models.cases import case
from tests.models.decoder.products.test_coded_weights import (
    KERNELS,
    SHAPES,
    logits,
    matrix,
    quantized,
    quantized_int4,
)
from tests.models.native import load_native
from tests.models.tiny_models import build_native
from tests.sham import CUDA, sham_device

ALL_KERNELS = [*dict.fromkeys((*KERNELS, QlinearProduct))]


def check_rows(kernel: type[Product], shape: tuple[int, int], threads: int) -> None:
    torch.set_num_threads(threads)
    run = kernel(quantized(matrix(*shape)))  # type: ignore[call-arg]
    given = matrix(33, shape[1])
    alone = torch.cat([run(row[None]) for row in given])
    assert all(torch.equal(run(given[:rows]), alone[:rows]) for rows in range(2, 34))


def test_a_row_does_not_see_the_others() -> None:
    for kernel, (shape, threads) in product(ALL_KERNELS, [((100, 2048), 1), ((7, 33), 2)]):
        with case(kernel, shape, threads):
            check_rows(kernel, shape, threads)


def test_all_kernels_of_this_machine_have_the_same_bits() -> None:
    for rows, shape in product([1, 2, 9, 300], [*SHAPES, (32, 11008)]):
        with case(rows, shape):
            weights, bias, given = quantized(matrix(*shape)), matrix(shape[0]), matrix(rows, shape[1])
            given[-1] = (torch.arange(shape[1]) % 255 - 127) / 2 + 2**-20  # many halves
            first, *others = [kernel(weights, bias)(given) for kernel in row_kernels()]  # type: ignore[arg-type]
            assert all(torch.equal(first, other) for other in others)


def check_int4_rows(shape: tuple[int, int], threads: int) -> None:
    torch.set_num_threads(threads)
    run, given = Int4Product(quantized_int4(matrix(*shape))), matrix(33, shape[1])
    alone = torch.cat([run(row[None]) for row in given])
    assert all(torch.equal(run(given[:rows]), alone[:rows]) for rows in range(2, 34))


def test_a_row_times_four_bits_does_not_see_the_others() -> None:
    check_int4_rows((96, 64), 1)
    check_int4_rows((512, 160), 2)


LAUNCH = "gencli.models.decoder.products.fixed_launch"
WHOLE = (40, 512)
NARROW_SHAPES = [(7, 32), (130, 608), WHOLE]  # sums in one part, in two, and in two of whole tiles


def weights_of(bits: int, shape: tuple[int, int]) -> tuple[torch.Tensor, ...]:
    """Codes, scales and zeros; in float32, as the interpreter has no bfloat16."""
    codes, *rest = (quantized if bits == 8 else quantized_int4)(matrix(*shape)).tensors
    return codes, *(part.float() for part in rest)


def dense(codes: torch.Tensor, scales: torch.Tensor, *zeros: torch.Tensor) -> torch.Tensor:
    """The weights that the codes stand for, [out, in] float64."""
    if not zeros:
        return codes.double() * scales[:, None].double()
    steps = Int4Weights(codes, scales, zeros[0]).unpacked(slice(None)).double().unflatten(1, (-1, GROUP)) - 8
    return (steps * scales[..., None] + zeros[0][..., None]).flatten(1)


def test_the_kernel_multiplies_the_weights_of_the_cpu() -> None:
    for bits, shape in product([8, 4], NARROW_SHAPES):
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
