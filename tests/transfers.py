"""Counts what would wait for the device."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

_READS = ("tolist", "item", "__float__", "__int__", "__index__", "__bool__")


@contextmanager
def counted_transfers() -> Iterator[Counter[str]]:
    """How often the host reads a list or a single value from a tensor, by the method it reads with.

    Methods of the class are counted, as in inference mode no dispatch mode sees a single value being read.
    """
    counts: Counter[str] = Counter()

    def counting(name):
        plain = getattr(torch.Tensor, name)

        def counted(tensor, *args):
            counts[name] += 1
            return plain(tensor, *args)

        return counted

    with pytest.MonkeyPatch.context() as patch:
        for name in _READS:
            patch.setattr(torch.Tensor, name, counting(name))
        yield counts
