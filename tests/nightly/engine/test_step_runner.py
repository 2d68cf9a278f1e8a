"""What a step costs: operations of the host, kernels of a device, and shapes."""

from tests.slow.engine.test_device import LAUNCHES
from tests.slow.engine.test_step_runner import Refused, check, check_chain


def test_each_chain_and_draw_are_of_constant_shape():
    for chain in LAUNCHES:
        check_chain(chain)


def test_a_decode_step_of_other_decoders_is_of_constant_shape(tmp_path):
    for kind in ("llama", "mixtral", "qwen3", "gemma2", "phi3", "granite", "qwen3_moe"):
        check(tmp_path / kind, kind)


def test_a_step_with_drafts_of_other_decoders_is_of_constant_shape(tmp_path):
    for kind in ("llama", "gemma3", "mixtral"):
        check(tmp_path / kind, kind, drafter=Refused())
