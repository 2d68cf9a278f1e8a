"""The kernel behind the product of queries, keys and values has the values of the decoder's own code."""

from itertools import product

from gencli.models.decoder.norms import Norm
from tests.models.cases import case
from tests.models.decoder.kernels.test_rotary import FLOAT, HALF, HEADS, KV_HEADS, WIDTH, check, noise


def test_norm_and_rotation():
    for dtype, turned, kind in product([FLOAT, HALF], [0, 8, WIDTH], ["none", "head", "whole"]):
        with case(dtype, turned, kind):
            made = noise(3, HEADS + 2 * KV_HEADS, WIDTH, dtype=dtype)
            rope = (
                noise(3, 1, turned, dtype=dtype),
                noise(3, 1, turned + 1, dtype=dtype)[..., :turned].contiguous(),
            )
            sizes = [WIDTH * (heads if kind == "whole" else 1) for heads in (HEADS, KV_HEADS)]
            norms = tuple(Norm(noise(size, dtype=dtype), 1e-5) for size in sizes) if kind != "none" else None
            check(made, rope if turned else None, norms, is_whole=kind == "whole")
