"""What only a CUDA device shows: captures that fail, counters, streams, threads, a second GPU, allocators."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from gencli import LLM, SamplingParams
from processors.graphs import CudaRecorder, Graphs
from tests.gpu.card import ON_A_CARD
from tests.processors.kernels.drafts import case

pytestmark = [*ON_A_CARD, pytest.mark.filterwarnings("ignore::gencli.errors.GencliWarning")]
MIB = 1 << 20
PROMPTS = ["Once upon a time", "The fox", "Dear Mia,"]


def written(llm, tokens=48, **values):
    """The texts of a model."""
    params = SamplingParams(max_tokens=tokens, seed=7, **{"temperature": 0.8, "top_p": 0.9, **values})
    return [out.text for out in llm.generate(PROMPTS, params)]


def loaded(**options):
    return LLM("tiny", **{"device": "cuda", "dtype": "float32", "max_batch": 4, **options})


@pytest.fixture
def values():
    return torch.arange(4.0, device="cuda")


def test_after_a_capture_that_fails_all_goes_on_as_before(values):
    recorder, before = CudaRecorder(values.device), torch.cuda.current_stream()
    assert (values * 2).tolist() == [0, 2, 4, 6]  # what is recorded has run before
    for refused in (lambda: values + values.sum().item(), lambda: torch.cuda.synchronize()):
        with pytest.raises(RuntimeError):
            recorder.record(refused)
        assert torch.cuda.current_stream() == before
    graph = recorder.record(lambda: values * 2)
    values += 1
    assert graph.replay().tolist() == [2, 4, 6, 8]
    large = torch.empty(256 * MIB, dtype=torch.uint8, device="cuda")
    held = torch.cuda.memory_reserved()
    del large
    torch.cuda.empty_cache()  # it frees nothing while the allocator believes in a capture
    assert torch.cuda.memory_reserved() <= held - 256 * MIB


def test_a_capture_finds_room_in_the_reserve(values):
    def run():
        return values.new_ones(10 * MIB) * values[0]

    run()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 96 * MIB) / total)
    try:
        torch.empty(80 * MIB, dtype=torch.uint8, device="cuda")  # in reserve from here on
        graph = CudaRecorder(values.device).record(run)
        assert graph.replay().sum().item() == 0
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_graphs_that_are_dropped_leave_no_memory(values):
    weight, held = torch.ones(512, 512, device="cuda"), []
    graphs = Graphs(lambda: CudaRecorder(values.device))
    for _ in range(40):  # more than PyTorch has streams
        for _ in range(3):
            graphs.run("product", lambda: weight @ weight)
        graphs.clear()
        torch.cuda.empty_cache()
        held.append(torch.cuda.memory_allocated())
    assert held[-1] <= held[2] + MIB


def test_counters_of_graphs_and_of_eager_launches_are_their_own():
    sizes = (4,), (2, 0, 4, 1, 3) * 400, (1,) * 3  # the second takes more counters
    cases = [[None if one is None else one.cuda() for one in case(5, 700, some)] for some in sizes]
    expected = [[one.tolist() for one in torch.ops.gencli.rejection(*some)] for some in cases]
    recorder = CudaRecorder(torch.device("cuda", 0))
    graphs = [recorder.record(lambda some=some: torch.ops.gencli.rejection(*some)) for some in cases]
    for _ in range(3):
        for graph, some, wanted in zip(graphs, cases, expected, strict=True):
            assert [one.tolist() for one in graph.replay()] == wanted
            assert [one.tolist() for one in torch.ops.gencli.rejection(*some)] == wanted


def test_rejections_of_early_and_late_drafts_race_to_the_same_end():
    given = case(9, 40_000, (8,) * 24, near=3.0)  # most drafts fall, in no order
    there = [None if one is None else one.cuda() for one in given]
    expected = [one.tolist() for one in torch.ops.gencli.rejection(*given)]
    busy, noise = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda")
    for _ in range(300):
        with torch.cuda.stream(busy):  # another load each time, so that programs start apart
            noise = torch.tanh(noise @ noise)
        found = torch.ops.gencli.rejection(*there)
        assert [one.tolist() for one in found] == expected


def test_texts_beside_another_busy_stream():
    llm = loaded(cuda_graphs="on")
    plain = written(llm)
    busy, noise = torch.cuda.Stream(), torch.randn(2048, 2048, device="cuda")
    with torch.cuda.stream(busy):
        for _ in range(500):
            noise = torch.tanh(noise @ noise)
    assert written(llm) == plain


def test_texts_through_growths_of_the_buffers():
    options = {"tokens": 900, "ignore_eos": True, "temperature": 0.0}  # buffers grow by 256
    with_graphs = loaded(cuda_graphs="on")
    assert written(with_graphs, **options) == written(loaded(cuda_graphs="off"), **options)
    assert with_graphs.spec.graphs.num_recorded > 2
    assert not [notice for notice in with_graphs.notices if "CUDA graph" in notice]


def test_two_models_in_two_threads_record_at_once():
    alone = written(loaded(cuda_graphs="on"))
    with ThreadPoolExecutor(2) as threads:
        together = threads.map(written, [loaded(cuda_graphs="on") for _ in range(2)])
        assert list(together) == [alone, alone]


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="there is one GPU")
def test_a_second_gpu_writes_the_texts_of_the_first():
    assert torch.cuda.current_device() == 0
    assert written(loaded(device="cuda:1", cuda_graphs="on")) == written(loaded(cuda_graphs="on"))


SCRIPT = """
import warnings; warnings.simplefilter("always")
from gencli import LLM, SamplingParams
llm = LLM("tiny", device="cuda", dtype="float32", max_batch=4)
for size in (30, 300):
    params = SamplingParams(max_tokens=size, ignore_eos=True, temperature=0.8, top_p=0.9, seed=3)
    out = llm.generate("Once upon a time", params)
print(out.text)
"""


def elsewhere(**environ):
    """What another process writes on the card, and what it says, in such an environment."""
    command, around = [sys.executable, "-c", SCRIPT], {**os.environ, **environ}
    done = subprocess.run(command, env=around, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_segments_that_expand_change_nothing():
    plain, _ = elsewhere()
    assert elsewhere(PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")[0] == plain


def test_without_a_compiler_for_triton_texts_are_the_same_and_a_warning_says_why(tmp_path):
    plain, _ = elsewhere()
    found, said = elsewhere(CC="/no/compiler", TRITON_CACHE_DIR=str(tmp_path / "empty"))
    assert found == plain
    assert "kernels for this GPU are not used" in said
