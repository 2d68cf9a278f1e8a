"""What a decode step costs the host: operations of PyTorch, passes over the logits, calls of functions."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from step import idle_model_engine
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

ROOT = Path(__file__).parent.parent.parent


OURS = (f"{ROOT}/gencli/", f"{ROOT}/processors/")


WIDTH, WARM = 300, 3


class Dispatched(TorchDispatchMode):
    """Counts operations, and those with an argument or a result of `size` elements or more."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size, self.operations, self.passes = size, 0, 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        leaves = tree_leaves((args, kwargs, found))
        self.operations += 1
        self.passes += any(isinstance(one, torch.Tensor) and one.numel() >= self.size for one in leaves)
        return found


@dataclass
class Calls:
    """Number of calls of functions of gencli and processors."""

    count: int = 0


@contextmanager
def counted_calls() -> Iterator[Calls]:
    seen, former = Calls(), sys.getprofile()

    def count(frame, event, _):
        seen.count += event == "call" and frame.f_code.co_filename.startswith(OURS)

    sys.setprofile(count)
    try:
        yield seen
    finally:
        sys.setprofile(former)


def engine(chain, rows):
    """An engine whose next step is one like any other."""
    on = idle_model_engine(chain, rows, 10, vocab_size=WIDTH)
    for _ in range(WARM):
        on.step()
    return on


def calls(chain, rows):
    on = engine(chain, rows)
    with counted_calls() as seen:
        on.step()
    return seen.count


def test_operations_do_not_grow_with_the_rows():
    counts = []
    for rows in (2, 16):
        on = engine("four stages", rows)
        with Dispatched(rows * WIDTH) as seen:
            on.step()
        counts.append(seen.operations)
    assert counts[0] == counts[1]


def test_a_row_costs_few_calls_of_our_functions():
    assert calls("greedy", 1) <= 140
    for chain, most in (("greedy", 16), ("four stages", 16)):
        assert (calls(chain, 20) - calls(chain, 4)) / 16 <= most
