"""How many times a log-sum-exp of two kernels a choice is predicted to take, where its lists suffice."""

from itertools import product

from choice_work import choice_work, logsumexp_work

from gencli.models.gpus import GPUS

# The aim is 3; lower a number when the kernels get nearer to it.
MOST = {
    ("greedy", 8): 1.1, ("greedy", 32): 1.1, ("draw", 8): 1.7, ("draw", 32): 1.6,
    ("cut", 8): 3.6, ("cut", 32): 3.3, ("mass", 8): 4.5, ("mass", 32): 4.6,
}  # fmt: skip


def times(works, yardstick, gpu):
    took, least = (sum(work.seconds(GPUS[gpu]) for work in some) for some in (works, yardstick))
    return took / least


def test_times_of_a_logsumexp():
    for gpu, (kind, rows) in product(["A100", "H100", "H200", "RTX 4090"], MOST):
        assert (
            times(choice_work(kind, rows, 151_936), logsumexp_work(rows, 151_936), gpu) <= MOST[kind, rows]
        ), (kind, rows, gpu)


def test_on_a_card_of_less_bandwidth_the_aim_is_met():
    for kind in ["cut", "mass"]:
        for rows in (8, 32):
            works = choice_work(kind, rows, 151_936)
            assert times(works, logsumexp_work(rows, 151_936), "RTX 4090") <= 3, kind


def test_masks_and_penalties_take_half_as_much_again():
    for gpu in ["A100", "H100", "H200", "RTX 4090"]:
        plain, patched = (choice_work("cut", 32, 151_936, is_patched=one) for one in (False, True))
        assert times(patched, plain, gpu) <= 1.5, gpu


def test_rows_that_keep_more_than_a_list_holds_take_longer():
    works = (choice_work("cut", 8, 151_936, is_flat=flat) for flat in (False, True))
    few, many = (sum(work.seconds(GPUS["H200"]) for work in some) for some in works)
    assert few < many
