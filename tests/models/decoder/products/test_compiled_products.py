"""Products of few bits by compiled kernels: values, and bits that depend on nothing but the row."""

import subprocess
import sys
from itertools import accumulate, product
from pathlib import Path

import pytest
import torch

from gencli.models.decoder.kernels import llvm_code
from gencli.models.decoder.kernels.layer_kernels import ACTIVATIONS, Norm
from gencli.models.decoder.kernels.llvm_code import missing
from gencli.models.decoder.products.coded_weights import Int4Weights, Int8Weights
from gencli.models.decoder.products.compiled_products import CodedRows, Codes, CompiledProduct, JoinedProduct
from gencli.models.decoder.products.dense_products import Product
from gencli.models.decoder.products.llvm_kernels import CodeFormat, KernelSource
from tests.models.cases import case

pytestmark = pytest.mark.skipif(missing() is not None, reason=f"{missing()}")

# Bits, the middle code, numbers with a scale, the format of scales, whether there are offsets.
FORMATS = (
    (4, 8, 32, torch.float16, False),
    (4, 0, 32, torch.float16, True),
    (4, 8, 32, torch.bfloat16, True),
    (4, 0, 32, torch.float32, True),
    (5, 16, 32, torch.float16, False),
    (6, 32, 16, torch.float32, False),
    (8, 128, 32, torch.float16, False),
)
SHAPES = ((16, 32), (7, 96), (100, 1536))


def weights(number: int, outputs: int, inputs: int) -> tuple[Codes, torch.Tensor]:
    """Random codes of a format, and the same weights in float64."""
    bits, middle, group, dtype, has_offsets = FORMATS[number]
    generator = torch.Generator().manual_seed(outputs)
    codes = torch.randint(0, 2**bits, (outputs, inputs), dtype=torch.uint8, generator=generator)
    scales = torch.rand(outputs, inputs // group, generator=generator).to(dtype)
    offsets = torch.randn(outputs, inputs // 32, generator=generator).to(dtype) if has_offsets else None
    wide = (codes.double() - middle).view(outputs, -1, group) * scales.double()[..., None]
    wide = wide.view(outputs, -1, 32) + (0 if offsets is None else offsets.double()[..., None])
    return Codes(bits, middle, codes, scales, offsets), wide.view(outputs, inputs)


def rows(count: int, inputs: int) -> torch.Tensor:
    return torch.randn(count, inputs, generator=torch.Generator().manual_seed(inputs))


def test_a_product_is_that_of_the_stored_numbers() -> None:
    for number, (outputs, inputs) in product(range(len(FORMATS)), SHAPES):
        with case(FORMATS[number], outputs, inputs):
            codes, wide = weights(number, outputs, inputs)
            given, bias = rows(5, inputs), torch.randn(outputs)
            for added in (None, bias):
                true = given.double() @ wide.T + (0 if added is None else added.double())
                # Activations have a relative error of one part in 2^16 at most.
                assert (CompiledProduct(codes, added)(given) - true).norm() < 1e-4 * true.norm()


def test_weights_rounded_by_gencli_are_taken_as_they_are() -> None:
    weight = rows(70, 96)
    four = Int4Weights.of((70, 96), [weight])
    codes = four.unpacked(slice(None))
    same = Codes(4, 8, codes, four.scales, four.zeros)
    assert torch.equal(CompiledProduct(four)(weight), CompiledProduct(same)(weight))
    for by_row in (False, True):
        eight = Int8Weights.of((70, 96), [weight], by_row=by_row)
        true = weight.double() @ eight.rows(torch.arange(70)).double().T
        assert (CompiledProduct(eight)(weight) - true).norm() < 1e-4 * true.norm()


def test_rows_of_eight_bits_are_read_back() -> None:
    eight, ids = Int8Weights.of((70, 96), [rows(70, 96)]), torch.tensor([69, 0, 16, 15, 69])
    assert torch.equal(CompiledProduct(eight).rows(ids), eight.rows(ids))


def test_rows_that_come_in_any_parts_make_the_same_product() -> None:
    for number in range(len(FORMATS)):
        codes, _ = weights(number, 70, 96)
        whole, given = CompiledProduct(codes)(rows(3, 96)), rows(3, 96)
        for sizes in ([70], [32, 38], [1] * 70, [5, 40, 0, 3, 16, 6]):
            ends = [*accumulate(sizes)]
            parts = [codes.rows(slice(end - size, end)) for end, size in zip(ends, sizes, strict=True)]
            with case(FORMATS[number], sizes):
                assert torch.equal(CompiledProduct(CodedRows((70, 96), parts))(given), whole)


def test_a_row_has_the_same_bits_among_any_rows_and_threads() -> None:
    for number in range(len(FORMATS)):
        with case(FORMATS[number]):
            make, given = CompiledProduct(weights(number, 100, 576)[0]), rows(37, 576)
            whole = make(given)
            for first, count in product((0, 7), (1, 2, 3, 5, 7, 8, 9, 16, 20, 30)):
                assert torch.equal(make(given[first : first + count]), whole[first : first + count])
            threads = torch.get_num_threads()
            try:
                for other in (1, 3):
                    torch.set_num_threads(other)
                    assert torch.equal(make(given), whole)
            finally:
                torch.set_num_threads(threads)


def test_numbers_that_are_not_finite_make_their_row_nan_and_no_other() -> None:
    make, given = CompiledProduct(weights(0, 100, 96)[0], torch.ones(100)), rows(12, 96)
    whole = make(given)
    given[1, 5], given[9, 95], given[10] = torch.inf, torch.nan, 0
    made = make(given)
    assert made[[1, 9]].isnan().all()
    assert (made[10] == 1).all()
    kept = [row for row in range(12) if row not in (1, 9, 10)]
    assert torch.equal(made[kept], whole[kept])


def test_avx2_has_the_bits_of_avx512() -> None:
    if llvm_code.dot_instructions() != "vnni":
        pytest.skip("this CPU has no AVX-512 VNNI")
    for number in range(len(FORMATS)):
        with case(FORMATS[number]):
            codes, given = weights(number, 100, 576)[0], rows(11, 576)
            fast, other = CompiledProduct(codes), CompiledProduct(codes, instructions="avx2")
            assert torch.equal(other(given), fast(given))


def test_the_code_is_one_of_the_oldest_llvm_that_is_taken() -> None:
    """LLVM 20 refuses the types of LLVM 22, which changes older ones to its own."""
    code = KernelSource(CodeFormat(4, 8, "half"), "vnni").text()
    assert 'vpdpbusd.512"(<16 x i32> %".1", <16 x i32> %".2", <16 x i32> %".3")' in code


def test_aarch64_takes_its_dot_products() -> None:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    target = llvm.Target.from_triple("aarch64-unknown-linux-gnu").create_target_machine(features="+dotprod")
    code = target.emit_assembly(llvm.parse_assembly(KernelSource(CodeFormat(8, 128, "half"), "sdot").text()))
    assert "\tsdot\t" in code


def test_without_llvmlite_few_bits_have_the_kernels_of_pytorch_which_a_notice_says() -> None:
    lines = (
        "import sys, warnings; warnings.simplefilter('ignore'); sys.modules['llvmlite'] = None",
        "from gencli import LLM",
        "from gencli.models.decoder.products.product_maker import int4_kernel",
        "from gencli.models.files.gguf_header import kept_bits",
        "print(int4_kernel().kernel, *sorted(kept_bits('cpu')))",
        "for form in ('int8', 'int4'):",
        "    with LLM('tiny-draft', quantize=form) as llm:",
        "        print(*(text for text in llm.notices if 'PyTorch' in text))",
    )
    made = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=True, cwd=Path.cwd()
    )
    kinds, *notices = made.stdout.splitlines()
    assert kinds == "int4pack Q4_0 Q4_1 Q4_K"
    for bits, notice in zip((8, 4), notices, strict=True):
        assert f"Weights of {bits} bits have the kernel of PyTorch, as llvmlite is not installed" in notice


def test_norms_sums_and_gates_before_a_product_are_those_of_the_layer() -> None:
    """The same as the steps one after the other, and a row has the same bits in any company."""
    codes = weights(0, 100, 576)[0]
    six, plain = weights(5, 36, 576)[0], CompiledProduct(weights(0, 100, 576)[0], torch.ones(100))
    product_of = JoinedProduct([CompiledProduct(codes), CompiledProduct(six)])
    states, more = rows(19, 576), rows(38, 576)[19:]
    norm, post = Norm(rows(1, 576)[0] + 1, 1e-5), Norm(rows(2, 576)[1], 1e-6)
    for made, other, after, scale in product((product_of, plain), (None, more), (None, post), (1.0, 0.5)):
        with case(made.kernel, other is None, after is None, scale):
            total, outputs = made.of_norm(states, other, after, scale, norm)
            true_total, true = Product.of_norm(made, states, other, after, scale, norm)
            assert (total - true_total).norm() < 1e-6 * true_total.norm()
            assert (outputs - true).norm() < 1e-4 * true.norm()
            for part in (slice(3, 4), slice(0, 9), slice(8, 19)):
                pair = made.of_norm(states[part], None if other is None else other[part], after, scale, norm)
                assert torch.equal(pair[0], total[part])
                assert torch.equal(pair[1], outputs[part])
    both = rows(19, 1152) * 3
    for activation in ACTIVATIONS:
        with case(activation):
            outputs, true = (
                plain.of_gate(both, activation, 7.0),
                Product.of_gate(plain, both, activation, 7.0),
            )
            assert (outputs - true).norm() < 1e-4 * true.norm()
            assert torch.equal(plain.of_gate(both[5:8], activation, 7.0), outputs[5:8])
    states[4, 9], both[4, 600] = torch.nan, torch.inf
    for outputs in (plain.of_norm(states, more, post, 1.0, norm)[1], plain.of_gate(both, "silu", 0.0)):
        assert outputs[4].isnan().all()
        assert outputs[[3, 5]].isfinite().all()
