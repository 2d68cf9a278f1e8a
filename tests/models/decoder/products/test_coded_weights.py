"""Weights of eight bits, and products with them.

Weights of four bits, and the product with them. Products on CUDA with narrow weights: values by the
interpreter, and the weights are those of the CPU.
"""

from itertools import product
from pathlib import Path

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError, UsageError
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.products.coded_weights import (
    GROUP,
    Int4Product,
    Int4Weights,
    Int8PackProduct,
    Int8Weights,
    row_kernels,
)
from gencli.models.decoder.products.dense_products import Product
from gencli.models.decoder.products.product_maker import FixedInt4Product, FixedInt8Product, check_narrow
from gencli.models.device import pick_dtype
from tests.helpers.gguf_files import write_model
from tests.models.cases import case
from tests.models.files.test_gguf_weights import model
from tests.models.native import load_native
from tests.models.tiny_models import build_native
from tests.sham import CUDA, sham_device

SHAPES = [(96, 64), (100, 2048), (64, 4096), (7, 33), (512, 160)]
# Int8PackProduct runs everywhere; the sums of the others saturate at 16 bits where no CPU has VNNI.
KERNELS = [*dict.fromkeys((Int8PackProduct, *row_kernels()))]


def matrix(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def quantized(weight: torch.Tensor) -> Int8Weights:
    outputs, inputs = weight.shape
    return Int8Weights.of((outputs, inputs), weight.split(3), by_row=True)  # a slice has any number of rows


def rounded(given: torch.Tensor, kernel: type[Product]) -> torch.Tensor:
    """The activations that a kernel multiplies."""
    if kernel is Int8PackProduct:
        return given.bfloat16().double()
    scales = given.abs().amax(1, True) / 127
    return ((given / scales + 0.5).floor() * scales.double()).double()


def test_codes_are_nearest_to_the_weights() -> None:
    weight = matrix(50, 70)
    weight[3] = 0
    made = quantized(weight)
    assert made.codes.abs().max() == 127
    assert (made.rows(torch.arange(50)) - weight).abs().max(1).values.le(made.scales * 0.5001).all()


def test_codes_in_groups_are_nearest_to_the_weights_and_closer_than_those_of_rows() -> None:
    weight = matrix(50, 96)
    weight[3, :32], weight[4] = 0, 1e-9  # the scale of the latter is no number of 16 bits
    weight[5, 0] = 100.0  # one weight that takes the scale of its row
    made, ids = Int8Weights.of((50, 96), weight.split(3)), torch.arange(50)
    off = (made.rows(ids) - weight).view(50, 3, 32).abs().amax(-1)
    assert off.le(made.scales.float() * 0.51 + 1e-8).all()
    by_row = quantized(weight)
    assert (by_row.rows(ids) - weight)[5, 32:].norm() > 10 * (made.rows(ids) - weight)[5, 32:].norm()
    again = made.by_row()
    assert again.scales.shape == (50,)
    assert (again.rows(ids) - weight).norm() < 1.1 * (by_row.rows(ids) - weight).norm()
    # Weights that fill no group have a scale for each output.
    assert Int8Weights.of((50, 95), [weight[:, 1:]]).scales.shape == (50,)


def test_a_product_is_that_of_the_rounded_numbers() -> None:
    for shape, kernel in product(SHAPES, KERNELS):
        with case(shape, kernel):
            weights, bias, given = quantized(matrix(*shape)), matrix(shape[0]), matrix(5, shape[1])
            given[2] = 0
            weight = weights.codes.double() * weights.scales[:, None]
            expected = rounded(given, kernel).nan_to_num() @ weight.T + bias
            made = kernel(weights, bias)(given)  # type: ignore[call-arg]
            tolerance = 1e-2 if kernel is Int8PackProduct else 1e-5
            atol = tolerance * float(expected.abs().max())
            torch.testing.assert_close(made.double(), expected, rtol=0, atol=atol)


def test_a_row_with_a_number_that_is_none_has_no_other_result() -> None:
    for kernel in row_kernels():
        with case(kernel):
            given = matrix(2, 64)
            given[1, 7] = torch.nan
            made = kernel(quantized(matrix(16, 64)))(given)  # type: ignore[arg-type]
            assert made[0].isfinite().all()
            assert made[1].isnan().all()


INT4_SHAPES = [(96, 64), (100, 2048), (7, 32), (512, 160)]


def quantized_int4(weight: torch.Tensor) -> Int4Weights:
    outputs, inputs = weight.shape
    return Int4Weights.of((outputs, inputs), weight.split(3))  # a slice has any number of rows


def dense(weights: Int4Weights) -> torch.Tensor:
    steps = weights.unpacked(slice(None)).double().unflatten(1, (-1, GROUP)) - 8
    return (steps * weights.scales[..., None] + weights.zeros[..., None]).flatten(1)


def test_codes_cover_each_group() -> None:
    weight = matrix(50, 96)
    weight[3, :32], weight[4] = 0.25, 0
    made = dense(quantized_int4(weight))
    assert torch.equal(made[3, :32], weight[3, :32].double())
    assert not made[4].any()
    assert (made - weight).norm() < 0.076 * weight.norm()  # smallest and largest alone: 0.078


def test_a_product_with_four_bits_is_that_of_the_rounded_numbers() -> None:
    for shape in INT4_SHAPES:
        with case(shape):
            weights, bias, given = quantized_int4(matrix(*shape)), matrix(shape[0]), matrix(5, shape[1])
            expected = given.bfloat16().double() @ dense(weights).T + bias
            made = Int4Product(weights, bias)(given)
            torch.testing.assert_close(
                made.double(), expected, rtol=0, atol=1e-2 * float(expected.abs().max())
            )


def test_weights_that_are_no_numbers_are_found() -> None:
    for wrong in [torch.nan, torch.inf, -torch.inf]:
        with case(wrong):
            weight = matrix(4, 64)
            weight[2, 40] = wrong
            assert quantized_int4(matrix(4, 64)).is_finite
            assert not quantized_int4(weight).is_finite


PROMPTS = (5, 6, 7, 8, 9, 10, 11), (30, 31)


def logits(runner: DecoderRunner) -> torch.Tensor:
    first = tuple(Feed(lane, 0, tokens) for lane, tokens in enumerate(PROMPTS))
    more = tuple(Feed(lane, len(tokens), (3,)) for lane, tokens in enumerate(PROMPTS))
    return torch.cat([runner.forward(StepPlan(feeds)).cpu() for feeds in (first, more)])


def test_a_gguf_file_keeps_its_bits(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    write_model(path, model(), "Q4_0")
    expected = logits(load_native(path, "cpu"))
    with sham_device():
        runner = load_native(path, CUDA)
        made = logits(runner)
    assert "fixed-int4" in runner.spec.kernels
    assert runner.spec.dtype == torch.bfloat16
    assert (made.float() - expected).norm() < 0.1 * expected.norm()


def test_a_decode_step_waits_for_nothing(tmp_path: Path) -> None:
    build_native("llama").save_pretrained(tmp_path)
    with sham_device() as seen:
        runner = load_native(tmp_path, CUDA, quantize="int4")
        runner.forward(StepPlan((Feed(0, 0, (1, 2, 3)),)))
        seen.clear()
        runner.forward(StepPlan((Feed(0, 3, (4,)),)))
    assert not seen.waits
    assert seen.launches["fixed_product"] == 5 * runner.spec.num_layers + 1  # values have 8 bits


def test_a_product_counts_the_bytes_of_codes_and_scales() -> None:
    for kind, weights, nbytes in (
        (FixedInt8Product, quantized(matrix(64, 96)), 64 * 96 + 4 * 64),
        (FixedInt4Product, quantized_int4(matrix(64, 96)), 64 * 48 + 4 * 64 * 3),
    ):
        made = kind(weights)  # type: ignore[arg-type]
        assert made.nbytes == nbytes, kind
        assert made(matrix(5, 96).bfloat16()).shape == (5, 64), kind


def test_states_between_codes_have_16_bits_on_a_gpu() -> None:
    kinds = {
        stored: pick_dtype("auto", device=CUDA, stored=stored, is_quantized=True)[0]
        for stored in ("BF16", "F16", "F32", "U8", "Q4_K")
    }
    assert kinds.pop("F16") == torch.float16
    assert {*kinds.values()} == {torch.bfloat16}
    with pytest.raises(UsageError, match=r"computed in bfloat16 or float16 on cuda:0"):
        pick_dtype("float32", device=CUDA, stored="U8", is_quantized=True)


def test_a_device_without_the_kernels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="run on a CPU and on CUDA, and the device is mps"):
        check_narrow(8, torch.float16, torch.device("mps"))
    with sham_device():
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
        check_narrow(4, torch.float16, CUDA)
        with pytest.raises(ModelError, match="cuda:0 does not compute bfloat16") as found:
            check_narrow(4, torch.bfloat16, CUDA)
        assert found.value.hint == "Give `dtype` = float16."
        monkeypatch.setattr(torch.version, "hip", "7.0")
        with pytest.raises(ModelError, match="take a GPU of NVIDIA and the package triton"):
            check_narrow(8, torch.float16, CUDA)
