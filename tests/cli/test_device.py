"""Commands on a GPU that fails, is full, too small, or not there: one message, no traceback."""

import warnings

import torch

from gencli.models import device
from tests.sham import Card, Fault, sham_device

ON_GPU = ("--device", "cuda", "--max-tokens", "30", "--seed", "3")


FAULT = "CUDA error: an illegal memory access was encountered"


def failing(after, text=FAULT, at="gencli/engine/engine.py:_step"):
    return Fault(lambda: torch.AcceleratorError(f"{text}\nCUDA kernel errors ..."), at, after, lost=True)


def check(result, text=FAULT):
    assert result.code == 6
    assert result.err.count("Error: ") == 1
    assert f"{text}.\nHint: " in result.err
    assert "Traceback" not in result.err


def test_a_gpu_that_cannot_be_used_is_said_while_the_model_is_loaded(gencli):
    for text, message in [
        ("CUDA error: no kernel image is available for execution on the device", "has no code for this GPU"),
        ("CUDA error: CUDA driver version is insufficient for CUDA runtime version", "driver of the GPU is"),
        ("CUDA error: CUDA-capable device(s) is/are busy or unavailable", "Another process has the GPU"),
    ]:
        with sham_device() as seen:
            seen.faults.append(failing(0, text, "gencli/models"))
            failed = gencli("run", *ON_GPU, "Once")
        check(failed, text)
        assert message in failed.err, text


def test_a_model_larger_than_the_card_is_refused(gencli):
    with sham_device(Card(memory=2**20)) as seen:
        refused = gencli("run", *ON_GPU, "Once")
        assert not seen.launches
    assert refused.code == 5
    assert "cuda:0 has 1.0 MiB free" in refused.err
    assert "needs" in refused.err

    with sham_device(Card(memory=2**21)):
        refused = gencli("run", *ON_GPU, "--memory-check", "off", "Once")
    assert refused.code == 5
    assert "The model does not fit into the memory of cuda:0." in refused.err


def test_a_gpu_that_is_hidden_is_said_to_be(gencli, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    refused = gencli("run", *ON_GPU, "Once")
    assert refused.code == 5
    assert "CUDA_VISIBLE_DEVICES is empty" in refused.err


def test_a_driver_that_is_too_old_is_said_to_be(gencli, monkeypatch):
    def told():
        warnings.warn("CUDA initialization: The NVIDIA driver on your system is too old.", stacklevel=1)
        return False

    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(torch.cuda, "is_available", told)
    monkeypatch.setattr(device, "_cuda_warning", device._cuda_warning.__wrapped__)
    refused = gencli("run", *ON_GPU, "Once")
    assert refused.code == 5
    assert "driver on your system is too old" in refused.err
