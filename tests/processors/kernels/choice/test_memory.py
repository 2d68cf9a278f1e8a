"""What a choice takes beside the logits, without masks and penalties."""

import pytest

from processors.kernels.choice.parts import CAPACITY, Control, Fact, Level, Mark
from processors.sampler import BLOCK


@pytest.mark.parametrize("width", [32_000, 128_256])
def test_a_row_takes_less_than_its_logits_in_float32(width):
    lists, facts = 2 * CAPACITY * 8, len(Fact) * -(-width // BLOCK) * 4
    tables = 8 * (len(Control) + len(Level) + len(Mark) + 3)
    assert lists + facts + tables < 4 * width
