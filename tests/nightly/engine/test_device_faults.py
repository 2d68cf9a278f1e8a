"""A GPU that is full runs fewer sequences at once and changes no text; one that fails is one clear error."""

from itertools import product

from tests.engine.test_device_faults import PLACES, folder, here
from tests.slow.engine.test_device_faults import check_place


def test_texts_stay_whenever_the_memory_of_a_gpu_ends(folder, here):
    for place, after in product(PLACES, (0, 7, 60)):
        check_place(folder, here, place, after)
