"""Two decode steps launch the same operations on the same shapes and addresses, as a CUDA graph needs."""

from tests.slow.engine.test_device import LAUNCHES
from tests.slow.engine.test_device_steps import check, check_chain


def test_each_chain_and_draw_are_of_constant_shape():
    for chain in LAUNCHES:
        check_chain(chain)


def test_a_decode_step_of_other_decoders_is_of_constant_shape(tmp_path):
    for kind in ("qwen3", "gemma2", "phi3", "granite", "qwen3_moe"):
        check(tmp_path / kind, kind)
