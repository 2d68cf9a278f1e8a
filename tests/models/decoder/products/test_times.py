"""Times of product kernels in the user's cache."""

import json
from pathlib import Path

import pytest
import torch

from gencli.models.decoder.products.dense_products import FixedProduct, PlainProduct
from gencli.models.decoder.products.product_maker import KernelTimes, Sizes, read_times
from tests.sham import CUDA, sham_device

SIZES = Sizes(torch.float32, 24, 16, 4)


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_times_are_measured_once(tmp_path: Path) -> None:
    times = read_times()
    made = times.of(SIZES, [PlainProduct])
    assert made["plain"] > 0
    times.write()
    assert read_times().of(SIZES, [PlainProduct]) == made
    assert list(read_times().entries) == ["float32 24x16, 4 rows"]


def written() -> KernelTimes:
    """Times that the cache has."""
    times = read_times()
    times.of(SIZES, [PlainProduct])
    times.write()
    return times


def test_another_number_of_threads_is_another_machine() -> None:
    written()
    torch.set_num_threads(2 if torch.get_num_threads() == 1 else 1)
    assert read_times().entries == {}


def test_a_damaged_cache_is_measured_again(tmp_path: Path) -> None:
    (tmp_path / "gencli").mkdir()
    for text in ("", "[]", "{", '{"any": 3}', "\xff"):
        (tmp_path / "gencli" / "kernels.json").write_text(text, encoding="latin-1")
        assert read_times().entries == {}, text
    written()
    path = tmp_path / "gencli" / "kernels.json"
    (machine,) = json.loads(path.read_text())
    path.write_text(json.dumps({machine: {str(SIZES): {"plain": "fast"}}}))
    assert read_times().entries == {}


def test_without_a_cache_nothing_is_written(tmp_path: Path) -> None:
    times = KernelTimes()
    times.of(SIZES, [PlainProduct])
    times.write()
    assert not list(tmp_path.iterdir())


def test_kernels_of_a_gpu_are_measured_there_by_its_clock_and_kept_beside_those_of_the_cpu(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("triton")
    # Small, as the sham device computes on the CPU.
    monkeypatch.setattr("gencli.models.decoder.products.product_maker._SLICE", {"cuda": 2**12, "cpu": 2**12})
    monkeypatch.setattr("gencli.models.decoder.products.product_maker._OTHERS", {"cuda": 2**12, "cpu": 2**12})
    with sham_device() as seen:
        times = read_times(CUDA)
        made = times.of(Sizes(torch.float32, 128, 16, 4), [FixedProduct, PlainProduct])
        assert made == {"fixed": 2000.0, "plain": 2000.0}  # an event of the sham device is 1 ms after another
        assert {kind for kind, _ in seen.waits} == {"event"}
        times.write()
        assert read_times(CUDA).entries == times.entries
    assert read_times().entries == {}
