"""The option `cuda_graphs`: on is refused by name where nothing can be recorded."""

import pytest

from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.device import make_graphs
from gencli.models.hf_runner import HFRunner
from tests.models.native import native_decoder
from tests.models.test_cuda_graphs import outcome
from tests.models.tiny_models import build_native
from tests.sham import CUDA, on_sham, sham_device

RUNNERS = {
    "native": lambda **options: DecoderRunner(native_decoder(build_native("llama"), CUDA), **options),
    "transformers": lambda **options: HFRunner(on_sham(build_native("llama")), **options),
}


@pytest.mark.parametrize("backend", RUNNERS)
def test_a_device_that_records_nothing_runs_the_same_steps_and_says_so_once(backend):
    with sham_device():
        found = [
            outcome(RUNNERS[backend](max_lanes=2, graphs=make_graphs(choice, "", CUDA)))
            for choice in ("auto", "off")
        ]
    assert found[0][0] == found[1][0]
    assert found[1][1] == []
    assert len(found[0][1]) == 1, found[0][1]
    assert "A CUDA graph could not be recorded" in found[0][1][0]
