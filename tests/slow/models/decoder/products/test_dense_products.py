"""Products with weights in the format of the activations.

The product with one order of sums on CUDA: values by the interpreter, instructions by the compiler. The
product of a mixture of experts on CUDA, by the interpreter: values, and bits in any company.
"""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import torch

from gencli.models.decoder.decoder_layers import routed
from gencli.models.decoder.products.dense_products import (
    ROWS,
    PackedProduct,
    can_pack,
    fixed_product_torch,
    has_tiles,
    widened_mxfp4,
)
from tests.interpreted import ON_CUDA
from tests.models.cases import case
from tests.models.decoder.products.test_dense_products import (
    EXPERTS,
    FORMATS,
    SHAPES,
    USED,
    experts_of,
    fixed_matrix,
    grouped_kernel,
    kernel,
    matrix,
    narrow,
    noise,
    twin,
)


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_row_of_a_packed_product_does_not_see_the_others(dtype: torch.dtype) -> None:
    if not can_pack(dtype):
        pytest.skip("this machine does not pack the format")
    if dtype == torch.bfloat16 and has_tiles():
        pytest.skip("the bits of AMX depend on the number of rows")
    for shape, threads in product(SHAPES, (1, 2)):
        torch.set_num_threads(threads)
        run, given = PackedProduct(matrix(shape, dtype)), matrix((16, shape[1]), dtype)
        alone = torch.cat([run(row[None]) for row in given])
        assert all(torch.equal(run(given[:rows]), alone[:rows]) for rows in range(2, 17)), (shape, threads)


KERNEL = "gencli.models.decoder.products.fixed_triton"


def summable(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Any numbers, but whole ones where the interpreter's float32 products sum rows in several orders."""
    made = fixed_matrix(shape, dtype)
    return made if ON_CUDA or dtype != torch.float32 else made.mul_(4).round_()


def check_rows(shape: tuple[int, int], dtype: torch.dtype) -> None:
    weight, bias, given = (summable(one, dtype) for one in (shape, shape[:1], (150, shape[1])))
    exact = given.double() @ weight.double().T + bias.double()
    # Each of the sums of n products has an error of at most n float32 roundings, the result one more.
    size = given.double().abs() @ weight.double().abs().T + bias.double().abs()
    bound = shape[1] * 2.0**-23 * size + torch.finfo(dtype).eps * exact.abs()
    for multiply in (
        kernel(weight, bias),
        lambda rows: fixed_product_torch(rows, weight, None, None, bias, torch.empty(0)),
    ):
        whole = multiply(given)  # several tiles of rows in a program
        assert ((whole.double() - exact).abs() <= bound).all()
        for count in (1, 2, 8, 17, 33):
            assert torch.equal(multiply(given[:count]), whole[:count]), count
        assert torch.equal(multiply(given[149:]), whole[149:])


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


Run = Callable[..., torch.Tensor]


def check_grouped_rows(shape: tuple[int, int], dtype: torch.dtype, bits: int | None) -> None:
    # Of whole numbers, whose sums are exact: the interpreter adds up by NumPy, in an order of its own.
    weight, logits = noise(EXPERTS, *shape).round(), noise(40, EXPERTS)
    logits[:, 1] = 9.0  # more rows than a tile has
    weights, wide = ([weight.to(dtype)], weight.to(dtype)) if bits is None else narrow(bits, weight)
    given = noise(40, shape[1]).round().to(dtype)
    rows, own = given.double().repeat_interleave(USED, 0), wide.double()[experts_of(logits)]
    exact = (own @ rows[..., None])[..., 0]
    size = (own.abs() @ rows.abs()[..., None])[..., 0]
    for run in (grouped_kernel, twin):

        def made_of(first: int, end: int, block: int = ROWS, run: Run = run) -> torch.Tensor:
            _, lists, tiles = routed(logits[first:end], USED, True, block)
            return run(given[first:end], weights, lists, tiles, block, USED)

        whole = made_of(0, 40, 2 * ROWS)  # several tiles of rows in a program
        assert ((whole.double() - exact).abs() <= 2e-3 * size).all()
        for first, end in ((0, 40), (0, 1), (0, 17), (39, 40)):
            made, expected = made_of(first, end), whole[first * USED : end * USED]
            assert torch.equal(made, expected) or bits == 4, (first, end)
            torch.testing.assert_close(made, expected)


def test_a_row_of_an_expert_has_the_same_bits_among_any_number_of_rows() -> None:
    check_grouped_rows((7, 544), torch.float16, None)
    check_grouped_rows((7, 544), torch.float16, 4)


def test_each_expert_has_a_bias_of_its_own() -> None:
    for bits, rows in product([None, 8, 4], [9, 200]):
        with case(bits, rows):
            weight, logits, bias = (
                noise(EXPERTS, 6, 64).half(),
                noise(rows, EXPERTS),
                noise(EXPERTS, 6).half(),
            )
            weights = [weight] if bits is None else narrow(bits, weight)[0]
            weights += [None] * (3 - len(weights))  # type: ignore[list-item]
            given = noise(rows, 64).half()
            block = ROWS if rows == 9 else 3 * ROWS
            _, lists, tiles = routed(logits, USED, True, block)
            for run in (grouped_kernel, twin):
                plain, made = (run(given, [*weights, one], lists, tiles, block, USED) for one in (None, bias))
                expected = (plain.float() + bias[experts_of(logits)].float()).half()
                torch.testing.assert_close(made, expected, rtol=2e-3, atol=1e-2)


def test_codes_of_mxfp4_are_the_numbers_that_they_stand_for() -> None:
    for rows in [9, 200]:
        with case(rows):
            some = torch.Generator().manual_seed(3)
            blocks = torch.randint(0, 256, (EXPERTS, 6, 2, 16), generator=some, dtype=torch.uint8)
            scales = torch.randint(118, 130, (EXPERTS, 6, 2), generator=some, dtype=torch.uint8)
            wide = torch.stack([widened_mxfp4(*one) for one in zip(blocks, scales, strict=True)]).half()
            given, block = noise(rows, 64).half(), ROWS if rows == 9 else 3 * ROWS
            _, lists, tiles = routed(noise(rows, EXPERTS), USED, True, block)
            for run in (grouped_kernel, twin):
                found, expected = (
                    run(given, weights, lists, tiles, block, USED)
                    for weights in ([blocks.flatten(2), scales], [wide])
                )
                torch.testing.assert_close(found, expected, rtol=2e-3, atol=1e-2)
