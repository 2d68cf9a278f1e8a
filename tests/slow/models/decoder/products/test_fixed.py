"""The product with one order of sums on CUDA: values by the interpreter, instructions by the compiler."""

import re
from pathlib import Path

import pytest
import torch

from gencli.models.decoder.products.dense_products import fixed_product_torch
from tests.interpreted import ON_CUDA
from tests.models.decoder.products.test_fixed import kernel, matrix

KERNEL = "gencli.models.decoder.products.fixed_triton"


def summable(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Any numbers, but whole ones where the interpreter's float32 products sum rows in several orders."""
    made = matrix(shape, dtype)
    return made if ON_CUDA or dtype != torch.float32 else made.mul_(4).round_()


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


def check_narrow(target: int) -> None:
    """Of few rows and many, with weights of 8 and of 4 bits."""
    pytest.importorskip("triton")
    from tests.compiled.aot import builds, compiled

    for bits in ("int8", "int4"):
        names = [f"few-{bits}", f"few-{bits}-whole", f"many-{bits}"]
        texts = [compiled(KERNEL, builds(KERNEL)[name], target).asm["ptx"] for name in names]
        found = [{one for one in instructions(text) if "mma" in one} for text in texts]
        assert found[0], (target, bits)
        assert found == [found[0]] * len(names), (target, bits)


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
