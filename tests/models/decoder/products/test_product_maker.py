"""The choice of product kernels. Times of product kernels in the user's cache."""

import json
from collections import Counter
from pathlib import Path

import pytest
import torch

from gencli.errors import ModelError
from gencli.models.decoder.products import product_maker
from gencli.models.decoder.products.coded_weights import FbgemmProduct, QlinearProduct
from gencli.models.decoder.products.dense_products import (
    FixedProduct,
    PackedProduct,
    PlainProduct,
    can_pack,
    has_tiles,
)
from gencli.models.decoder.products.product_maker import (
    KernelOptions,
    KernelTimes,
    ProductMaker,
    Sizes,
    choose_kernels,
    fastest_kernels,
    kernels_of,
    read_times,
)
from tests.models.cases import case
from tests.sham import CUDA, sham_device

CPU = torch.device("cpu")
LARGE, WIDE, SMALL = (1024, 1024), (4096, 1024), (8, 8)
PRODUCTS = Counter({LARGE: 10, WIDE: 1, SMALL: 3})
needs_packing = pytest.mark.skipif(not can_pack(), reason="this machine does not pack weights")


def choose(large: tuple[float, float], wide: tuple[float, float], **asked: object) -> ProductMaker:
    """The choice with these times of the plain and the packed product of a large and a wide weight."""
    names = ("plain", "packed", "row-packed")
    entries = {
        str(Sizes(torch.float32, *size, 1)): dict(zip(names, (*times, 1e9), strict=True))
        for size, times in ((LARGE, large), (WIDE, wide))
    }
    times = KernelTimes(entries=entries)
    return choose_kernels(PRODUCTS, torch.float32, CPU, KernelOptions(**asked), times)  # type: ignore[arg-type]


@needs_packing
def test_invariant_kernels_are_taken_if_a_whole_step_takes_hardly_longer() -> None:
    made = choose((100, 90), (100, 140))  # 1,000 at best, 1,040 with packed weights alone
    assert (made.names, made.is_invariant) == (("packed",), True)


@needs_packing
def test_the_fastest_kernels_are_taken_if_invariant_ones_cost_more_and_options_overrule_that() -> None:
    made = choose((100, 120), (100, 90))
    assert made.kernels == {LARGE: PlainProduct, WIDE: PackedProduct}
    assert not made.is_invariant
    for asked, names in [
        ({"invariant": "on"}, ("packed",)),
        ({"invariant": "off"}, ("packed", "plain")),
        ({"kernel": "plain"}, ("plain",)),
        ({"kernel": "packed"}, ("packed",)),
    ]:
        assert choose((100, 120), (100, 90), **asked).names == names, asked


def test_what_this_machine_lacks_is_refused() -> None:
    with pytest.raises(ModelError, match="`kernel` is packed"):
        choose_kernels(PRODUCTS, torch.float16, CPU, KernelOptions(kernel="packed"))
    with pytest.raises(ModelError, match="`invariant` is on"):
        choose_kernels(PRODUCTS, torch.float16, CPU, KernelOptions(invariant="on"))
    with pytest.raises(ModelError, match="`invariant` is on.*`kernel` = plain"):
        choose_kernels(PRODUCTS, torch.float32, CPU, KernelOptions(kernel="plain", invariant="on"))


def test_sizes_that_no_model_has_are_not_measured() -> None:
    times = KernelTimes()
    choose_kernels(Counter({(3, 2**40): 1}), torch.float32, CPU, KernelOptions(), times)
    assert not times.entries


def test_kernels_with_invariant_rows_come_first() -> None:
    kinds = [kernel.is_invariant for kernel in kernels_of(torch.float32, CPU)]
    assert kinds == sorted(kinds, reverse=True)


def test_of_kernels_with_the_same_bits_the_first_is_taken_unless_another_is_clearly_faster() -> None:
    given = {LARGE: (110, 100), WIDE: (130, 100)}
    entries = {
        str(Sizes(torch.int8, *size, 4)): dict(zip(("fbgemm", "qlinear"), times, strict=True))
        for size, times in given.items()
    }
    kernels = (FbgemmProduct, QlinearProduct)
    made = fastest_kernels([LARGE, WIDE, SMALL], torch.int8, kernels, 6, KernelTimes(entries=entries))
    assert made == {LARGE: FbgemmProduct, WIDE: QlinearProduct}
    assert not fastest_kernels([LARGE], torch.int8, kernels, 6, None)


@pytest.mark.skipif(not can_pack(torch.bfloat16), reason="this machine does not pack bfloat16")
def test_packed_bfloat16_is_invariant_unless_the_cpu_has_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    assert kernels_of(torch.bfloat16, CPU)[0].is_invariant is not has_tiles()
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
    assert kernels_of(torch.bfloat16, CPU)[0].is_invariant


GPU = torch.device("cuda", 0)
FORMATS = (torch.bfloat16, torch.float16, torch.float32)


def on_gpu(fixed: float, plain: float, **asked: object) -> ProductMaker:
    """The choice with these times of the fixed and the plain product of a large weight."""
    entries = {str(Sizes(torch.bfloat16, *LARGE, 1)): {"fixed": fixed, "plain": plain}}
    times = KernelTimes(entries=entries, device=GPU)
    return choose_kernels(Counter({LARGE: 3}), torch.bfloat16, GPU, KernelOptions(**asked), times)  # type: ignore[arg-type]


def test_on_a_gpu_one_order_of_sums_is_taken_where_it_costs_hardly_more() -> None:
    for times, asked, name in [
        ((104, 100), {}, "fixed"),
        ((106, 100), {}, "plain"),
        ((200, 100), {"invariant": "on"}, "fixed"),
        ((104, 100), {"invariant": "off"}, "plain"),
        ((200, 100), {"kernel": "fixed"}, "fixed"),
    ]:
        with case(times, asked, name):
            pytest.importorskip("triton")
            made = on_gpu(*times, **asked)
            assert (made.names, made.is_invariant) == ((name,), name == "fixed")


def test_a_gpu_has_it_with_triton_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    assert all(kernels_of(dtype, GPU) == [FixedProduct, PlainProduct] for dtype in FORMATS)
    assert kernels_of(torch.float64, GPU) == kernels_of(torch.float32, torch.device("mps")) == [PlainProduct]
    monkeypatch.setattr("gencli.models.decoder.products.dense_products.find_spec", lambda name: None)
    assert kernels_of(torch.bfloat16, GPU) == [PlainProduct]


SIZES = Sizes(torch.float32, 24, 16, 4)


@pytest.fixture(autouse=True)
def _cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(product_maker, "is_shared", lambda: False)


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


def test_times_of_shared_cores_are_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as busy:
        busy.setattr(product_maker, "is_shared", lambda: True)
        assert written().entries
    assert read_times().entries == {}
    written()
    assert read_times().entries


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
