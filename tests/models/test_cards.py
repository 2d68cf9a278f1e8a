"""GPUs by name, and the time of work on them."""

import pytest

from gencli.errors import UsageError
from gencli.models.gpus import GPUS, GpuWork, gpu_named, memory_named
from tests.models.cases import case

GIB = 2**30


def test_a_gpu_is_found_by_its_name_and_by_what_a_driver_tells():
    for name, gpu in GPUS.items():
        assert gpu_named(name) is gpu_named(name.lower().replace(" ", "-")) is gpu, name
    told = {
        "NVIDIA H100 80GB HBM3": "H100",
        "NVIDIA H100 PCIe": "H100 PCIe",
        "NVIDIA H200": "H200",
        "NVIDIA A100-SXM4-80GB": "A100",
        "NVIDIA A100-SXM4-40GB": "A100 40GB",
        "NVIDIA GeForce RTX 4090": "RTX 4090",
        "NVIDIA L40S": "L40S",
        "NVIDIA L4": "L4",
    }
    assert {name: gpu_named(name).name for name in told} == told


def test_memory_is_told_by_its_size_or_by_the_name_of_the_gpu():
    assert (
        memory_named("24GB") == memory_named("24 GiB") == memory_named("rtx 4090") == GPUS["RTX 4090"].memory
    )
    assert 23.6 * GIB < memory_named("24GB") < 23.7 * GIB
    for text in ("", "24", "TITAN X", "24GB of it", "NVIDIA L40", "RTX 4090 Laptop GPU"):
        with case(text), pytest.raises(UsageError, match="is no GPU"):
            memory_named(text)


def test_work_is_bound_by_its_slowest_part_and_by_launches():
    gpu = GPUS["H200"]
    reads = GpuWork(4.8e9 * 0.9, kernels=0)
    assert reads.seconds(gpu) == pytest.approx(1e-3)
    assert GpuWork(4.8e9, kernels=0, float64=1e12).seconds(GPUS["RTX 4090"]) > 1
    assert GpuWork(0, kernels=100).seconds(gpu, is_graph=False) == pytest.approx(500e-6)
    assert GpuWork(0, kernels=100).seconds(gpu) == pytest.approx(330e-6)
