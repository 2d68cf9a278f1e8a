"""Keys and values in narrow formats: their errors, and what is beyond their range."""

import torch

from gencli.models.kv.lane_buffers import as_stored, stored_width, widened
from tests.models.cases import case


def back(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    stored = as_stored(values, dtype)
    assert stored.shape[-1] == stored_width(dtype, values.shape[-1])
    return widened(stored, values.dtype)


def test_eight_bits_have_the_largest_value_of_a_token_and_head_exactly() -> None:
    values = (
        torch.randn(5, 4, 64, generator=torch.Generator().manual_seed(0))
        * 10.0 ** torch.arange(-2, 2)[:, None]
    )
    values[1, 2], values[2, 3, 7] = 0.0, 3e38
    made, largest = back(values, torch.int8), values.abs().amax(-1, True)
    assert ((made - values).abs() <= largest * (0.5001 / 127)).all()
    torch.testing.assert_close(made.abs().amax(-1, True), largest)


def test_fp8_has_three_bits_behind_the_first_from_2_to_the_minus_6_to_448() -> None:
    values = torch.logspace(-6, 8.8, 3000, base=2)
    made = back(torch.cat([values, -values]), torch.float8_e4m3fn)
    assert ((made.abs() / values.repeat(2) - 1).abs() <= 1 / 16).all()
    small = torch.linspace(-(2.0**-6), 2.0**-6, 999)
    assert ((back(small, torch.float8_e4m3fn) - small).abs() <= 2.0**-10).all()
    assert back(torch.tensor([449.0, -1e30]), torch.float8_e4m3fn).tolist() == [448.0, -448.0]


def test_states_of_16_bits_are_stored_as_narrowly() -> None:
    for dtype in [torch.bfloat16, torch.float16]:
        with case(dtype):
            values = torch.linspace(-3, 3, 32, dtype=dtype).view(2, 16)
            for kind in (torch.float8_e4m3fn, torch.int8):
                assert back(values, kind).dtype == dtype
                torch.testing.assert_close(back(values, kind), values, rtol=1 / 16, atol=0.02)
