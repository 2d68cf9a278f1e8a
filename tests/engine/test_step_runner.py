"""What a step costs: operations of the host, kernels of a device, and shapes."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from step import idle_model_engine
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.engine.harness import engine, request
from tests.sham import sham_device
from tests.sham_cuda import differences

ROOT = Path(__file__).parent.parent.parent
OURS = (f"{ROOT}/gencli/", f"{ROOT}/processors/")
VOCABULARY, WARM = 300, 3


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


def small_engine(chain, rows):
    """An engine whose next step is one like any other."""
    on = idle_model_engine(chain, rows, 10, vocab_size=VOCABULARY)
    for _ in range(WARM):
        on.step()
    return on


def calls(chain, rows):
    on = small_engine(chain, rows)
    with counted_calls() as seen:
        on.step()
    return seen.count


def test_operations_do_not_grow_with_the_rows():
    counts = []
    for rows in (2, 16):
        on = small_engine("four stages", rows)
        with Dispatched(rows * VOCABULARY) as seen:
            on.step()
        counts.append(seen.operations)
    assert counts[0] == counts[1]


def test_a_row_costs_few_calls_of_our_functions():
    assert calls("greedy", 1) <= 140
    for chain, most in (("greedy", 16), ("four stages", 16)):
        assert (calls(chain, 20) - calls(chain, 4)) / 16 <= most


def steady(seen, runner, chain, *, rows=4, first=10, **options):
    """Two successive steps that decode `rows` texts."""
    on = engine(runner=runner, max_batch=rows, run_ahead=False, **options)
    for c in "abcdefgh"[:rows]:
        on.submit(request(c * 5, key=c, chain=f"ignore_eos=true | {chain}", max_tokens=first + 9))
    for _ in range(first):
        on.step()
    seen.cut()
    steps = []
    for _ in range(2):
        on.step()
        steps.append(seen.cut())
    assert all(step.calls for step in steps)
    return steps


def test_what_differs_is_told_with_its_place():
    with sham_device() as seen:
        held = torch.zeros(4, device="cuda")
        steps = []
        for number in range(2):
            seen.cut()
            torch.ones(2 + number, device="cuda") * 2
            held = held + 1.5 + number
            steps.append(seen.cut())
    told = ["add, address", "add, value", "mul, shape", "ones, value"]
    assert differences(*steps) == [f"elsewhere: {one}" for one in told]
