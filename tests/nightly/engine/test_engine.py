"""The engine: texts, ends, samples, cancellations, faults of a device, random requests in one batch."""

from itertools import product

from tests.engine.test_engine import FULL, PLACES, everything, folder, here, load, options
from tests.sham import Fault, sham_device
from tests.slow.engine.test_engine import check
from tests.speculative.cases import outcomes


def test_texts_stay_whenever_the_memory_of_a_gpu_ends(folder, here):
    for place, after in product(PLACES, (0, 7, 60)):
        with sham_device() as seen:
            there = load(folder, "cuda")
            given = options(folder, "cuda")
            seen.faults.append(Fault(FULL["allocator"], at=PLACES[place], after=after))
            assert outcomes(everything(), runner=there, **given)[0] == here, place
            assert seen.faults[0].struck or after, place


def test_more_random_chains_give_the_same_alone_and_in_one_batch():
    for seed in (0, 1, 2):
        check(seed)
