"""Recorded decode steps, of gencli's decoder and of transformers: what holds for both."""

import pytest
import torch

from gencli.core.request import StepPlan
from gencli.models.decoder.decoder import DecoderRunner
from processors.graphs import Graphs
from tests.models.decoder.test_decode_steps import runner as decoder_runner
from tests.models.schedules import behind_a_move, held, prompts, tokens_at
from tests.models.test_hf_graphs import runner as library_runner
from tests.recorder import CpuRecorder

both_runners = pytest.mark.parametrize("make", [decoder_runner, library_runner], ids=["decoder", "library"])


def store_of(run):
    """What holds the buffers of keys and values."""
    return run._lanes._store if isinstance(run, DecoderRunner) else run._lanes._cache.store


@both_runners
def test_nobody_reads_the_spare_row(make):
    wanted = held(make("llama", Graphs(CpuRecorder)), steps=4)
    run = make("llama", Graphs(CpuRecorder))
    assert torch.equal(held(run, steps=1)[0], wanted[0])
    store = store_of(run)
    with torch.inference_mode():
        for buffer in store.buffers:
            buffer._data[store.rows.spare] = torch.nan
    for step, one in enumerate(wanted[1:], 1):
        assert torch.equal(run.forward(tokens_at(5 + step)), one)


@both_runners
def test_growing_buffers_are_recorded_anew(make):
    graphs = Graphs(CpuRecorder)
    found = []
    for one in (graphs, Graphs(None)):
        run = make("llama", one)
        found.append(held(run, steps=3))
        run.forward(StepPlan((prompts(600, [3]).feeds[0],)))
        found[-1] += [run.forward(tokens_at(8 + step)) for step in range(4)]
    assert all(map(torch.equal, *found))
    assert graphs.num_recorded == 2


@both_runners
def test_a_buffer_of_a_later_layer_that_moves_alone_is_read_where_it_is(make):
    runs = [make("llama", Graphs(recorder)) for recorder in (CpuRecorder, None)]
    found = [behind_a_move(run, store_of(run).buffers[-1]) for run in runs]
    assert all(map(torch.equal, *found))


@both_runners
def test_a_draft_of_the_first_layers_has_graphs_of_its_own(make):
    graphs = Graphs(CpuRecorder)
    draft = make("llama", graphs).first_layers(1, max_lanes=2)
    held(draft, steps=3, lanes=(0,))
    assert draft.spec.graphs is not graphs
    assert draft.spec.graphs.num_recorded == 1
