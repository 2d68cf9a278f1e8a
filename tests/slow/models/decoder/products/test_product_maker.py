"""Times of product kernels in the user's cache."""

from importlib.metadata import PackageNotFoundError

import pytest
import torch

from gencli.models.decoder.products.dense_products import PlainProduct
from gencli.models.decoder.products.product_maker import KernelTimes, Sizes, read_times
from tests.models.decoder.products.test_product_maker import SIZES
from tests.sham import CUDA, Card, sham_device


def test_without_triton_a_gpu_has_times_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gencli.models.decoder.products.product_maker.version", version_of_nothing)
    with sham_device():
        times = read_times(CUDA)
        times.of(Sizes(torch.float32, 8, 16, 1), [PlainProduct])
        times.write()
        assert read_times(CUDA).entries == times.entries


def version_of_nothing(name: str) -> str:
    raise PackageNotFoundError(name)


def test_the_clock_of_a_second_gpu_is_its_own() -> None:
    second = torch.device("cuda", 1)

    def seconds(run):
        run()
        return 1.0 + torch.cuda.current_device()

    with sham_device(Card(), Card()):
        found = KernelTimes(device=second, seconds=seconds).of(SIZES, [PlainProduct])
    assert found == {"plain": 2e6}
