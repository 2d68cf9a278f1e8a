"""Values go to a device and come back without a wait but the one that reads them."""

import torch

from processors.graphs import copy_to, start_download, upload_ints
from tests.sham import CUDA, sham_device


def test_a_tensor_of_any_size_is_copied_without_a_wait():
    for size in (3, 20_000):
        host = torch.arange(size)
        with sham_device() as seen:
            there = copy_to(CUDA, host)
            assert there.device == CUDA, size
            assert not seen.waits, size
            assert there.tolist() == host.tolist(), size
        assert copy_to(torch.device("cpu"), host).tolist() == host.tolist(), size


def test_what_is_launched_before_values_are_read_is_not_waited_for():
    with sham_device() as seen:
        values = upload_ints([5, 7], CUDA)
        read = start_download(values)
        values.add_(1)
        assert not seen.waits
        assert read() == [5, 7]
        assert dict(seen.waits) == {("event", "processors/graphs.py:read"): 1}
    assert start_download(torch.tensor([[1], [2]]))() == [[1], [2]]
