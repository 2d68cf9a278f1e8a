"""The product with one order of sums on CUDA: values by the interpreter, instructions by the compiler."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from gencli.models.decoder.products.fixed import (
    MAX_SPLIT_ROWS,
    ROWS,
    FixedProduct,
    fixed_product_torch,
    num_parts,
    num_tiles,
)
from tests.interpreted import ON_CUDA, interpreted
from tests.models.cases import case

KERNEL = "gencli.models.decoder.products.fixed_triton"
LAUNCH = "gencli.models.decoder.products.fixed_launch"
# Sums in one part and in two; outputs and inputs that fill no tile, and inputs that fill one.
SHAPES = [(7, 33), (130, 600), (3, 512)]
FORMATS = [torch.float32, torch.float16]  # the interpreter has no bfloat16


def matrix(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def summable(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Any numbers, but whole ones where the interpreter's float32 products sum rows in several orders."""
    made = matrix(shape, dtype)
    return made if ON_CUDA or dtype != torch.float32 else made.mul_(4).round_()


def kernel(weight: torch.Tensor, bias: torch.Tensor | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """The product by the interpreted kernel; its counters are zero again behind each call."""
    launch = interpreted(LAUNCH, "fixed_product_triton")
    arrived = torch.zeros(MAX_SPLIT_ROWS // ROWS * num_tiles(len(weight)), dtype=torch.int32)

    def run(given: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = launch(given, weight, None, None, bias, arrived)
        assert not arrived.any()
        return made

    return run


def check_rows(shape: tuple[int, int], dtype: torch.dtype) -> None:
    weight, bias, given = (summable(one, dtype) for one in (shape, shape[:1], (150, shape[1])))
    exact = given.double() @ weight.double().T + bias.double()
    # Each of the sums of n products has an error of at most n float32 roundings, the result one more.
    size = given.double().abs() @ weight.double().abs().T + bias.double().abs()
    bound = shape[1] * 2.0**-23 * size + torch.finfo(dtype).eps * exact.abs()
    for product in (
        kernel(weight, bias),
        lambda rows: fixed_product_torch(rows, weight, None, None, bias, torch.empty(0)),
    ):
        whole = product(given)  # several tiles of rows in a program
        assert ((whole.double() - exact).abs() <= bound).all()
        for count in (1, 2, 8, 17, 33):
            assert torch.equal(product(given[:count]), whole[:count]), count
        assert torch.equal(product(given[149:]), whole[149:])


def test_a_row_has_the_same_bits_among_any_number_of_rows() -> None:
    check_rows((130, 600), torch.float16)


@pytest.mark.parametrize("dtype", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_row_has_the_same_bits_in_all_shapes(shape: tuple[int, int], dtype: torch.dtype) -> None:
    check_rows(shape, dtype)


def test_without_a_bias_and_without_rows() -> None:
    weight = matrix((5, 40), torch.float32)
    product = kernel(weight, None)
    torch.testing.assert_close(product(torch.eye(40)), weight.T)
    assert product(torch.empty(0, 40)).shape == (0, 5)


def test_an_absent_row_changes_no_row_even_beside_infinity() -> None:
    for kind in ["kernel", "twin"]:
        with case(kind):
            weight, given = matrix((4, 40), torch.float32), matrix((3, 40), torch.float32)
            given[1] = torch.inf
            run = kernel(weight, None) if kind == "kernel" else FixedProduct(weight)
            made = run(given)
            assert torch.equal(made[[0, 2]].isfinite(), torch.ones(2, 4, dtype=torch.bool))
            assert not made[1].isfinite().any()


def test_few_outputs_are_added_up_in_parts() -> None:
    sizes = {
        (128256, 2048): 1,
        (16384, 2048): 1,
        (2048, 8192): 8,
        (4096, 4096): 4,
        (896, 896): 3,
        (64, 64): 1,
    }
    assert {size: num_parts(*size) for size in sizes} == sizes


INSTRUCTION = re.compile(r"\b((?:mma|wgmma\.mma_async|tcgen05\.mma|mul|fma)\.[\w.:]*)")


def instructions(text: str) -> set[str]:
    """The kinds of instructions of PTX that add up products, with their shapes."""
    found = {name for name in INSTRUCTION.findall(text) if "f32" in name or "kind::f16" in name}
    # The shape of Blackwell's instruction is a number in a register.
    shapes = {re.search(rf"mov\.b32\s+{re.escape(name)}, (\d+)", text)[1] for name in _descriptors(text)}
    # Two fused products in one instruction have the bits of two instructions.
    return {name.removesuffix("x2") for name in found} | shapes


def _descriptors(text: str) -> set[str]:
    return set(re.findall(r"tcgen05\.mma\.[^;]*?, (%r\d+), %p\d+;", text))


BUILDS = [*((target, "bf16") for target in (80, 89, 90, 100, 120)), (90, "float32"), (100, "float32")]


def check_instructions(target: int, dtype: str) -> None:
    """Of few rows and many."""
    pytest.importorskip("triton")
    from tests.compiled.aot import builds, compiled

    is_wide = dtype == "bf16" and target not in (90, 100)
    few, many = (
        instructions(compiled(KERNEL, builds(KERNEL)[f"{name}-{dtype}"], target).asm["ptx"])
        for name in ("few", "wide" if is_wide else "many")
    )
    assert few == many
    if dtype == "float32":
        assert {name.split(".")[0] for name in few} == {"fma"}
    else:
        assert len(few) == (2 if target == 100 else 1)


def check_experts(target: int, dtype: str) -> None:
    """Of rows of experts, too."""
    pytest.importorskip("triton")
    from tests.compiled.aot import builds, compiled

    names = [f"{name}-{dtype}" for name in ("few", "few-experts", "many-experts")]
    names += ["tile-experts-bf16"] if dtype == "bf16" else []
    found = [instructions(compiled(KERNEL, builds(KERNEL)[name], target).asm["ptx"]) for name in names]
    assert found == [found[0]] * len(names)


@pytest.fixture
def own_compiler_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))


def test_rows_are_computed_by_the_same_instructions_whatever_their_number(own_compiler_cache: None) -> None:
    check_instructions(90, "bf16")
    check_experts(90, "bf16")


@pytest.mark.parametrize(("target", "dtype"), BUILDS)
def test_rows_are_computed_by_the_same_instructions_on_all_cards(
    target: int, dtype: str, own_compiler_cache: None
) -> None:
    check_instructions(target, dtype)
    if target in (80, 90, 100) and (target, dtype) != (100, "float32"):
        check_experts(target, dtype)


def test_a_kernel_does_not_know_the_number_of_rows() -> None:
    pytest.importorskip("triton")
    from gencli.models.decoder.products import fixed_triton

    assert all(
        one.do_not_specialize == ["num_rows", "list_size"] for one in (fixed_triton._few, fixed_triton._many)
    )
