"""A full memory or a lost device while a step is recorded or replayed, or while its buffers grow."""

import pytest
import torch

from processors.graphs import Graphs
from tests.engine.harness import engine, texts
from tests.models.decoder.test_graph_faults import FULL, Faulty, requests, runner, wanted

REFUSED = {
    "a wait": torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing"),
    "a foreign error": ValueError("no such kernel"),
}


@pytest.mark.parametrize("error", [*FULL.values(), *REFUSED.values()], ids=[*FULL, *REFUSED])
def test_a_recording_that_fails_costs_a_notice_and_no_text(error):
    graphs = Graphs(Faulty("record", error))
    on = engine(runner=runner(graphs), max_batch=4)
    assert texts(requests(), on=on) == wanted()
    told = [text for text in on.notices if "CUDA graph" in text]
    assert len(told) == 1
    assert ("the memory is full" in told[0]) == (error in FULL.values())
    assert on.limit == 4


@pytest.mark.parametrize(("error", "at"), [*zip(FULL.values(), (1, 2, 3), strict=True)], ids=FULL)
def test_a_full_memory_at_a_replay_halves_the_batch(error, at):
    graphs = Graphs(Faulty("replay", error, at))
    on = engine(runner=runner(graphs), max_batch=4)
    assert texts(requests(), on=on) == wanted()
    assert on.limit == 2
    assert graphs.num_replayed > at  # steps are recorded anew
