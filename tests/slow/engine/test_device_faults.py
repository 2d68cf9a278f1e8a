"""A GPU that is full runs fewer sequences at once and changes no text; one that fails is one clear error."""

import pytest
import torch

from gencli.core.events import Error
from gencli.errors import DeviceError, ModelError
from processors.errors import device_fault, is_out_of_memory
from tests.engine.harness import engine, generate, request
from tests.engine.test_device_faults import FULL, PLACES, everything, folder, here, load, options
from tests.sham import Card, Fault, sham_device
from tests.speculative.cases import outcomes


def test_each_way_to_say_that_the_memory_is_full(folder):
    for name, make in FULL.items():
        assert is_out_of_memory(make()), name
        assert not device_fault(make()), name
        with sham_device() as seen:
            on = engine(runner=load(folder, "cuda"), max_batch=4)
            seen.faults.append(Fault(make, at=PLACES["forward pass"]))
            ends = generate([request(c * 9, key=c, max_tokens=4) for c in "abcd"], on=on)
            assert not any(isinstance(end, Error) for end in ends.values()), name
        assert "The memory is full with 4 sequences at once; from now on 2 run." in on.notices, name
        with sham_device() as seen:
            seen.faults.append(Fault(make, at="gencli/models/decoder/weight_readers.py", after=5))
            with pytest.raises(ModelError, match="does not fit into the memory of cuda:0"):
                load(folder, "cuda")
    with sham_device(Card(memory=40_000)), pytest.raises(ModelError, match="does not fit"):
        load(folder, "cuda")


LOST = (
    "CUDA error: device-side assert triggered",
    "CUDA error: unspecified launch failure",
    "CUDA error: an illegal memory access was encountered",
    "CUDA error: the launch timed out and was terminated",
    "CUDA error: uncorrectable ECC error encountered",
    "CUDA error: GPU is lost",
    "CUDA error: the GPU has fallen off the bus",
    "CUDA error: unknown error",
    "CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling `cublasSgemm`",
    "cuDNN error: CUDNN_STATUS_EXECUTION_FAILED",
    "CUDA driver error: unknown error",
    "Triton Error [CUDA]: an illegal memory access was encountered",
)


def test_a_pass_ahead_without_memory_runs_later(folder):
    requests = [request(c * 9, key=c, chain="top_p=0.9", max_tokens=9) for c in "abcd"]
    here, _ = outcomes(requests, runner=load(folder, "cpu"), max_batch=4)
    with sham_device() as seen:
        seen.faults.append(Fault(FULL["allocator"], at="gencli/engine/run_ahead.py:launch"))
        assert outcomes(requests, runner=load(folder, "cuda"), max_batch=4)[0] == here
        assert seen.faults[0].struck


def test_memory_that_another_process_took_halves_the_batch(folder):
    requests = [request(c * 200, key=c, chain="top_p=0.9", max_tokens=8) for c in "abcd"]
    here, _ = outcomes(requests, runner=load(folder, "cpu"), max_batch=4)
    with sham_device(card := Card(memory=2**30)):
        runner = load(folder, "cuda")
        card.others = card.total - card.allocated - 900_000
        on = engine(runner=runner, max_batch=4)
        ends = generate(requests, on=on)
    assert {key: end.text for key, end in ends.items()} == {key: end[0] for key, (_, end) in here.items()}
    assert on.limit < 4


def test_a_gpu_that_failed_is_one_error_and_no_full_memory(folder):
    for what in LOST:
        error = torch.AcceleratorError(what)
        assert not is_out_of_memory(error), what
        with sham_device() as seen:
            on = engine(runner=load(folder, "cuda"), max_batch=4)
            seen.faults.append(Fault(lambda error=error: error, after=40, lost=True))
            for c in "abcd":
                on.submit(request(c * 9, key=c, max_tokens=20))
            with pytest.raises(DeviceError, match=what.split(": ")[1].split(" when")[0]):
                list(on.run())
            with pytest.raises(DeviceError):
                on.step()
        assert not any("memory" in notice for notice in on.notices), what
