"""Two decode steps launch the same operations on the same shapes and addresses, as a CUDA graph needs."""

import torch

from tests.engine.harness import engine, request
from tests.sham import sham_device
from tests.sham_cuda import differences


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
