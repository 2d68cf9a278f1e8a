"""Recorded decode steps, of gencli's decoder and of transformers: what holds for both."""

import pytest
import torch

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.hf_runner import HFRunner
from processors.graphs import Graphs
from tests.models.native import native_decoder
from tests.models.schedules import prompts
from tests.models.tiny_models import SWITCH, long_rope
from tests.recorder import CpuRecorder


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
