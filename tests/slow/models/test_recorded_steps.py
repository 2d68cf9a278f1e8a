"""The option `cuda_graphs`: on is refused by name where nothing can be recorded.

Recorded decode steps, of gencli's decoder and of transformers: what holds for both.
"""

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.device import make_graphs
from gencli.models.hf_runner import HFRunner
from processors.graphs import Graphs
from tests.models.native import native_decoder
from tests.models.schedules import prompts
from tests.models.test_recorded_steps import outcome
from tests.models.tiny_models import SWITCH, build_native, long_rope
from tests.recorder import CpuRecorder
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


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda **options: DecoderRunner(native_decoder(long_rope("phi3")), **options), 1),
        (lambda **options: DecoderRunner(native_decoder(long_rope("phi3")), **options), 3),
        (lambda **options: HFRunner(long_rope("phi3"), **options), 1),
    ],
    ids=["decoder", "drafts on the decoder", "library"],
)
def test_a_long_rope_takes_the_factors_of_each_text(make, size):
    graphs, places, found = Graphs(CpuRecorder), (SWITCH - 3, SWITCH + 5, 4), []
    for one in (graphs, None):
        run = make(max_lanes=3, graphs=one)
        for lane, length in enumerate(places):
            run.forward(StepPlan((prompts(length, [lane]).feeds[0],)))
        for step in range(0, 6 * size, size):
            feeds = [Feed(lane, at + step, (9,) * size, size) for lane, at in enumerate(places)]
            found.append(run.forward(StepPlan(tuple(feeds))))
    torch.testing.assert_close(found[:6], found[6:], rtol=1e-3, atol=1e-3)
    assert graphs.num_replayed
