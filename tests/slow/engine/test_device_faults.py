"""A GPU that is full runs fewer sequences at once and changes no text; one that fails is one clear error."""

import pytest

from gencli.core.events import Error
from gencli.errors import ModelError
from processors.machine_faults import device_fault, is_out_of_memory
from tests.engine.harness import engine, generate, request
from tests.engine.test_device_faults import FULL, PLACES, everything, folder, here, load, options
from tests.sham import Card, Fault, sham_device
from tests.speculative.cases import outcomes


def check_place(folder, here, place, after):
    with sham_device() as seen:
        there = load(folder, "cuda")
        given = options(folder, "cuda")
        seen.faults.append(Fault(FULL["allocator"], at=PLACES[place], after=after))
        assert outcomes(everything(), runner=there, **given)[0] == here, place
        assert seen.faults[0].struck or after, place


def test_texts_stay_wherever_the_memory_of_a_gpu_ends(folder, here):
    for place in ("forward pass", "keys and values", "a draft model", "a beam's lane", "the reading"):
        check_place(folder, here, place, 0)


def test_each_way_to_say_that_the_memory_is_full(folder):
    for name, make in FULL.items():
        assert is_out_of_memory(make()), name
        assert not device_fault(make()), name
        with sham_device() as seen:
            on = engine(runner=load(folder, "cuda"), max_batch=4)
            seen.faults.append(Fault(make, at=PLACES["forward pass"]))
            ends = generate([request(c * 9, key=c, max_tokens=4) for c in "abcd"], on=on)
            assert not any(isinstance(end, Error) for end in ends.values()), name
        assert "The memory is full with 4 sequences at once; from now on 2 run." in on.notices, name
        with sham_device() as seen:
            seen.faults.append(Fault(make, at="gencli/models/decoder/reader.py", after=5))
            with pytest.raises(ModelError, match="does not fit into the memory of cuda:0"):
                load(folder, "cuda")
    with sham_device(Card(memory=40_000)), pytest.raises(ModelError, match="does not fit"):
        load(folder, "cuda")
