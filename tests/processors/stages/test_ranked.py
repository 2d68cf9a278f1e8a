"""top_h, min_k, typical and tfs: entries 12, 14 and 16; cases of peers are in vectors."""

import math

INF = math.inf
FLAT = [0.5] * 5


def test_typical_ends_where_the_mass_reaches_p_or_where_it_exceeds_it(kept):
    for boundary, ids in [("inclusive", [0, 1, 2]), ("strict", [0, 1, 2, 3])]:
        assert kept("typical", {"p": 0.75, "boundary": boundary}, [0.0] * 4) == ids, boundary


def test_exclusive_typical_drops_the_token_that_reaches_p(kept):
    assert kept("typical", {"p": 0.75, "boundary": "exclusive"}, [0.0] * 4) == [0, 1]
    assert kept("typical", {"p": 0.1, "boundary": "exclusive"}, [0.0] * 4) == [0]


def test_typical_may_drop_the_most_likely_token(kept):
    flat_behind_a_peak = [math.log(p) for p in (0.4, *[0.01] * 60)]
    assert kept("typical", {"p": 0.295}, flat_behind_a_peak) == list(range(1, 31))


def test_ties_of_typical_are_cut_by_id_or_kept(kept):
    for params in [{"p": 0.1}, {"p": 0.1, "keep": 3}]:
        assert kept("typical", params, FLAT) == list(range(params.get("keep", 1))), params
        assert kept("typical", {**params, "ties": "keep"}, FLAT) == [0, 1, 2, 3, 4], params


def test_typical_keeps_the_lowest_ids_of_ties_above_the_mean_as_well(kept):
    row = [math.log(p) for p in (0.1, 0.1, 0.2, 0.2, 0.2, 0.2)]  # those of 0.2 are closest to the entropy
    assert kept("typical", {"p": 0.3}, row) == [2, 3]
    assert kept("typical", {"p": 0.85}, row) == [0, 2, 3, 4, 5]


def test_top_h_looks_at_the_candidates_alone(kept):
    assert kept("top_h", {"h": 1, "candidates": 3}, [5.0, 4.0, 4.0, 4.0, 4.0]) == [0, 1, 2]
    # Their part of the entropy is less than that of all tokens, of which they are a quarter.
    spread = [2.0, 1.0, *[0.0] * 30]
    assert kept("top_h", {"h": 0.9, "candidates": 4}, spread) == [0, 1, 2]
    assert kept("top_h", {"h": 0.9, "candidates": 4, "renormalise": False}, spread) == [0, 1, 2]


def test_min_k_cuts_at_the_steepest_fall(kept):
    assert kept("min_k", {"tau": 0}, [9.0, 8.9, 1.0, 8.8, 0.5]) == [0, 1, 3]


def test_min_k_keeps_more_of_a_narrow_row(kept):
    assert kept("min_k", {"tau": 3.5}, [1.0, 0.0, 0.5, 0.25]) == [0, 2, 3]
    assert kept("min_k", {"tau": 3.5}, [10.0, 0.0, 5.0, 2.5]) == [0]


def test_min_k_keeps_ties_with_its_last_token(kept):
    assert kept("min_k", {"tau": 2.5}, [1.0, 0.0, 0.5, 0.5, 0.5]) == [0, 2, 3, 4]


def test_tfs_leaves_a_row_without_a_bend(kept):
    for z in [0, 0.5, 0.999]:
        assert kept("tfs", {"z": z}, FLAT) == [0, 1, 2, 3, 4], z
        assert kept("tfs", {"z": z}, [4.0, -INF, 1.0]) == [0, 2], z
        assert kept("tfs", {"z": z}, [4.0, 1.0]) == [0, 1], z


def test_kobold_keeps_one_token_less(kept):
    row = [math.log(p) for p in (0.5, 0.2, 0.12, 0.1, 0.05, 0.03)]
    assert [len(kept("tfs", {"z": 0.9, "style": style}, row)) for style in ("centred", "kobold")] == [3, 2]
