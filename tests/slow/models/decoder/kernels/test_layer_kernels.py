"""The kernels of norms and residual sums have the values of the decoder's own code.

The kernel behind the product of queries, keys and values has the values of the decoder's own code. The
kernels that choose experts, and add up what these return, have the values of their references. The kernel
of the gate has the values of the decoder's own code.
"""

from itertools import product

import pytest
import torch

from gencli.models.decoder.decoder_layers import routed
from gencli.models.decoder.kernels.layer_kernels import (
    ACTIVATIONS,
    Norm,
    added,
    added_normed,
    gated,
    normed,
    rotate_and_store,
)
from gencli.models.kv.lane_buffers import stored_width
from tests.interpreted import interpreted
from tests.models.cases import case
from tests.models.decoder.kernels.test_layer_kernels import (
    CLOSE,
    FORMATS,
    KERNEL,
    MODULE,
    ROUTING_FORMATS,
    SIZES,
    given,
    lists_of,
    noise,
)


def test_a_sum_and_its_norm():
    for scale, has_post, (dtype, weights) in product([1.0, 0.22], [False, True], FORMATS):
        with case(scale, has_post, dtype, weights):
            states, more, norm, post = given(dtype, weights)
            post = post if has_post else None
            parts = (post.weight, post.eps) if post else (None, 0.0)
            found = interpreted(MODULE, "added_normed")(states, more, *parts, scale, norm.weight, norm.eps)
            expected = added_normed(states, more, post, scale, norm)
            for one, other in zip(found, expected, strict=True):
                torch.testing.assert_close(one, other, **CLOSE[dtype])
            total = interpreted(MODULE, "added")(states, more, *parts, scale)
            torch.testing.assert_close(total, added(states, more, post, scale), **CLOSE[dtype])


def test_a_norm():
    for dtype, weights in FORMATS:
        with case(dtype, weights):
            states, _, norm, _ = given(dtype, weights)
            found = interpreted(MODULE, "normed")(states, norm.weight, norm.eps)
            torch.testing.assert_close(found, normed(states, norm), **CLOSE[dtype])


HEADS, KV_HEADS, WIDTH = 4, 2, 20
FLOAT, HALF = torch.float32, torch.float16
CELLS = torch.tensor([4, 0, 2]), torch.tensor([63, 0, 7])


def by_kernel(made, buffer, rope, norms, *, is_whole):
    weights = [norm.weight for norm in norms] if norms else [None, None]
    call = interpreted("gencli.models.decoder.kernels.rotary_triton", "rotate_and_store")
    return call(made, buffer, *CELLS, *(rope or (None, None)), *weights, 1e-5, is_whole)


def buffers(kv_dtype, width=WIDTH):
    """Two buffers, token-major in memory as on CUDA."""
    shape = (5, 64, 2 * KV_HEADS, stored_width(kv_dtype, width))
    return [torch.zeros(shape, dtype=kv_dtype).transpose(1, 2) for _ in range(2)]


def codes(buffer):
    """The bytes as numbers. A NaN of float8 has no sign: a card drops it, a CPU keeps it."""
    found = buffer.contiguous().view(torch.uint8).int()
    is_nan = (buffer.dtype == torch.float8_e4m3fn) & (found & 127 == 127)
    return torch.where(is_nan, 127, found)


def check(made, rope, norms, *, is_whole=False, kv_dtype=None):
    one, other = buffers(kv_dtype or made.dtype, made.shape[-1])
    found = by_kernel(made, one, rope, norms, is_whole=is_whole)
    expected = rotate_and_store(made, other, CELLS, rope, norms, is_whole=is_whole)
    close = 0.0 if made.dtype == HALF else 2e-6
    torch.testing.assert_close(found, expected, rtol=close, atol=close, equal_nan=True)
    if one.dtype.itemsize == 1:
        assert int((codes(one) - codes(other)).abs().max()) <= (made.dtype == FLOAT)
    else:
        torch.testing.assert_close(one, other, rtol=close, atol=close)


def rotary_noise(*shape, dtype):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


def test_narrower_formats():
    for dtype, kv_dtype in product([FLOAT, HALF], [HALF, torch.float8_e4m3fn, torch.int8]):
        with case(dtype, kv_dtype):
            made = rotary_noise(3, HEADS + 2 * KV_HEADS, WIDTH, dtype=dtype)
            made[0, -1, 0] = 6e4 if dtype == HALF else 7e4
            made[1] = 0.0
            check(made, None, None, kv_dtype=kv_dtype)


def test_every_float16_has_the_bits_of_float8():
    made = torch.arange(2**16, dtype=torch.int32).to(torch.int16).view(HALF)
    made = made.view(-1, 1, 4096).expand(-1, 2 + 2 * KV_HEADS, -1)[:16]
    for rows in range(0, 15, 3):
        check(made[rows : rows + 3].contiguous(), None, None, kv_dtype=torch.float8_e4m3fn)
    check(made[13:16].contiguous(), None, None, kv_dtype=torch.float8_e4m3fn)


def test_norm_and_rotation():
    for turned, kind in product([0, 8, WIDTH], ["none", "head", "whole"]):
        dtype = HALF if (turned == 8) == (kind == "head") else FLOAT
        with case(dtype, turned, kind):
            made = rotary_noise(3, HEADS + 2 * KV_HEADS, WIDTH, dtype=dtype)
            rope = (
                rotary_noise(3, 1, turned, dtype=dtype),
                rotary_noise(3, 1, turned + 1, dtype=dtype)[..., :turned].contiguous(),
            )
            sizes = [WIDTH * (heads if kind == "whole" else 1) for heads in (HEADS, KV_HEADS)]
            norms = (
                tuple(Norm(rotary_noise(size, dtype=dtype), 1e-5) for size in sizes)
                if kind != "none"
                else None
            )
            check(made, rope if turned else None, norms, is_whole=kind == "whole")


@pytest.mark.parametrize("is_normalized", [True, False])
def test_the_kernel_chooses_as_the_reference(is_normalized: bool) -> None:
    for size, dtype in product(SIZES, ROUTING_FORMATS):
        with case(size, dtype):
            check_choice(size, is_normalized, dtype)


def check_choice(size: tuple[int, int, int, int], is_normalized: bool, dtype: torch.dtype) -> None:
    rows, experts, used, block = size
    logits = noise(rows, experts).to(dtype)
    logits[0] = 0.5  # equals
    found = interpreted(KERNEL, "routed")(logits, used, is_normalized, block)
    expected = routed(logits, used, is_normalized, block)
    torch.testing.assert_close(found[0], expected[0])
    assert lists_of(*found[1:]) == lists_of(*expected[1:])
    assert [one.shape for one in found] == [one.shape for one in expected]


def test_values():
    for dtype, activation in product([torch.float32, torch.float16], ACTIVATIONS):
        with case(dtype, activation):
            made = torch.cat([torch.randn(2, 2060), torch.linspace(-9, 9, 2060)[None].expand(2, -1)])
            made[0, :4] = torch.tensor([0.0, torch.inf, torch.nan, -60.0])
            options = activation, 7.0 if activation == "clamped" else 0.0
            found = interpreted("gencli.models.decoder.kernels.gate_triton", "gated")(
                made.to(dtype), *options
            )
            close = {"rtol": 1e-5 if dtype == torch.float32 else 2e-3, "atol": 1e-5, "equal_nan": True}
            torch.testing.assert_close(found, gated(made.to(dtype), *options), **close)
