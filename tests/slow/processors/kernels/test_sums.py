"""Sums over rows: the kernels, interpreted, have PyTorch's values and one order for any number of rows."""

from itertools import product

import torch

from processors.kernels.operations import row_cumsums, row_sums
from tests.interpreted import interpreted
from tests.processors.kernels.test_sums import some

KERNELS = "processors.kernels.sums_triton"


def test_sums_are_those_of_pytorch_and_do_not_see_other_rows():
    for dtype, width, plain in product(
        (torch.float32, torch.float64), (1, 700, 2048, 5001), (row_sums, row_cumsums)
    ):
        launch, values = interpreted(KERNELS, f"{plain.__name__}_triton"), some(5, width, dtype)
        found = launch(values)
        torch.testing.assert_close(found, plain(values))
        assert torch.equal(launch(values[3:4].clone()), found[3:4]), (dtype, width, plain)
        if plain is row_cumsums:
            assert (found.diff(dim=1) >= 0).all(), (dtype, width)


def test_parts_of_rows_and_columns_and_no_rows():
    values = some(4, 90)
    for part in (values[:, 30:80], values[:, ::2], values[:0]):
        for name, plain in (("row_sums", row_sums), ("row_cumsums", row_cumsums)):
            torch.testing.assert_close(interpreted(KERNELS, f"{name}_triton")(part), plain(part))


def test_what_is_no_number_stays_in_its_row():
    values = some(3, 3000)
    values[0, 7], values[1, 2500] = torch.nan, torch.inf
    sums, running = (interpreted(KERNELS, f"{name}_triton")(values) for name in ("row_sums", "row_cumsums"))
    assert sums[0].isnan().all()
    assert sums[1].isinf().all()
    assert sums[2].isfinite().all()
    assert running[0, 7:].isnan().all()
    assert running[:, :7].isfinite().all()
