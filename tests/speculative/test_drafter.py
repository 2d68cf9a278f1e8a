"""Drafts that repeat the text: n-grams and suffixes."""

from functools import partial
from itertools import product

import pytest

from gencli.core.request import Drafting, Request
from gencli.speculative.drafter import (
    DEPTH,
    DraftAsk,
    DraftTree,
    NgramDrafter,
    SampleTokens,
    SuffixCounts,
    SuffixDrafter,
    num_right,
)


def drafter(least=0.0):
    made = NgramDrafter()
    made.admit(0, Request("k", (1,), drafting=Drafting(min_p=least)))
    return made


def drafted(text, most=8, least=0.0):
    return drafter(least).propose([DraftAsk(0, tuple(text), most)])[0]


def test_what_followed_the_last_tokens_is_the_draft():
    for text, run in (
        ([1, 2, 3, 4, 1, 2], [3, 4, 1, 2, 3, 4, 1, 2]),  # and on in itself
        ([1, 2, 3, 1, 2, 4, 1, 2], [4, 1, 2, 4, 1, 2, 4, 1]),  # the latest place
        ([9, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2], [3, 8, 1, 2, 4, 9, 1, 2]),  # the longest match
        ([1, 2, 3], []),
        ([1, 2, 1], []),  # one token is no n-gram
        ([5], []),
    ):
        assert drafted(text) == run, text
    assert drafted([1, 2, 3, 4, 1, 2], most=1) == [3]


def test_a_draft_that_the_places_do_not_agree_on_is_left_out():
    split = [1, 2, 3, 7, 5, 1, 2, 4, 8, 6, 1, 2, 3, 7, 0, 1, 2]
    assert drafted(split, most=3) == [3, 7, 0]
    assert drafted(split, most=3, least=0.6) == [3, 7]
    assert drafted(split, most=3, least=0.7) == []


def test_growing_token_by_token_finds_what_a_fresh_index_finds():
    text = [(i * i) % 5 for i in range(60)]
    grown = drafter()
    for end in range(1, len(text)):
        ask = DraftAsk(0, SampleTokens(text[:3], text[3:end]) if end > 3 else text[:end], 4)
        assert grown.propose([ask])[0] == drafted(text[:end], 4)


def counted(text, most=10_000):
    counts, ends = SuffixCounts(most), [0]
    for token in text:
        ends = counts.grow(ends, token)
    return counts, ends


def guessed(text, num=3):
    counts, ends = counted(text)
    return [guess for guess, _ in zip(counts.guesses(ends), range(num), strict=False)]


def suffix_drafts(on, text, most=8, slot=0):
    return on.propose([DraftAsk(slot, tuple(text), most)])[0]


def test_counts_decide_and_of_equal_ones_the_latest_and_a_longer_run_is_trusted_more():
    assert guessed([1, 2, 1, 2, 1, 3, 1])[0].token == 2
    assert guessed([1, 2, 1, 3, 1])[0].token == 3
    for times, probability in ((1, 1 / 2), (3, 3 / 4)):
        guess = guessed([7, 8] * times + [9, 7])[0]
        assert guess.probability == pytest.approx(probability), times
    guess = guessed([1, 2, 3, 4, 9, 3, 5, 8, 3, 5, 7, 1, 2, 3])[0]
    assert (guess.token, guess.probability) == (4, pytest.approx(1 / (1 + 1 / 3)))


def test_the_ends_of_a_text_are_those_it_grew_to():
    text = [(i * i) % 7 for i in range(80)]
    counts, ends = counted(text)
    assert counts.ends(text) == ends
    assert len(ends) == DEPTH


def test_a_full_tree_takes_up_nothing_new():
    counts, _ = counted(range(1000), most=50)
    assert len(counts) == 50


def test_outputs_that_have_ended_help_those_that_follow():
    on = SuffixDrafter()
    on.admit(0, Request("a", (1, 2)))
    assert suffix_drafts(on, [1, 2, 5, 6, 7, 8]) == []
    on.release(0)
    on.admit(0, Request("b", (3,)))
    assert suffix_drafts(on, [3, 5, 6], most=2) == [7, 8]
    assert suffix_drafts(on, [3, 5, 6, 1]) == []  # prompts are no outputs


def test_outputs_with_a_salt_neither_help_others_nor_are_helped():
    for first, second in (("s", ""), ("", "s"), ("s", "s")):
        on = SuffixDrafter()
        on.admit(0, Request("a", (1, 2), salt=first))
        suffix_drafts(on, [1, 2, 5, 6, 7, 8])
        on.release(0)
        on.admit(0, Request("b", (3,), salt=second))
        assert suffix_drafts(on, [3, 5, 6], most=2) == [], (first, second)


def test_an_output_joins_with_what_came_after_the_last_question():
    on, output = SuffixDrafter(), [5]
    on.admit(0, Request("a", (1, 2)))
    on.propose([DraftAsk(0, SampleTokens((1, 2), output), 4)])
    output += [6, 7]
    on.release(0)
    on.admit(0, Request("b", (3,)))
    assert suffix_drafts(on, [3, 5, 6], most=1) == [7]


def test_memory_is_bounded_and_what_is_oldest_goes_first():
    on = SuffixDrafter(nodes=200)
    for batch in range(30):
        on.admit(0, Request("a", (0,)))
        suffix_drafts(on, [0, *range(100 * batch, 100 * batch + 20)])
        on.release(0)
    on.admit(0, Request("b", (0,)))
    assert suffix_drafts(on, [0, 2905, 2906], most=1) == [2907]
    assert suffix_drafts(on, [0, 2905, 2906, 5, 6]) == []


def test_no_token_below_the_least_probability_is_drafted():
    on = SuffixDrafter()
    on.admit(0, Request("a", (1,), drafting=Drafting(min_p=0.7)))
    assert suffix_drafts(on, [1, 2, 9, 1]) == []
    assert suffix_drafts(on, [1, 2, 9, 1, 2, 9, 1, 2, 9, 1]) != []


def assert_tree(drafts, ask, *, offered=1):
    """Parents come first, siblings differ, and the limits hold. Return the paths of the nodes.

    `offered`: how many nodes there may be for each that can be verified.
    """
    if not isinstance(drafts, DraftTree):
        drafts = DraftTree(tuple(drafts), tuple(range(-1, len(drafts) - 1)))
    paths = [()]
    for node, (token, parent) in enumerate(zip(drafts.tokens, drafts.parents, strict=True)):
        assert -1 <= parent < node
        paths.append((*paths[parent + 1], token))
    assert len({*paths}) == len(paths)
    assert max(map(len, paths)) <= ask.most
    assert len(drafts) <= (offered * ask.nodes or ask.most)
    return paths[1:]


def principal(drafts):
    """The tokens of the first children."""
    if not isinstance(drafts, DraftTree):
        return list(drafts)
    run, node = [], -1
    while node in drafts.parents:
        node = drafts.parents.index(node)
        run.append(drafts.tokens[node])
    return run


SPLIT = (1, 2, 3, 7, 5, 1, 2, 4, 8, 6, 1, 2, 3, 7, 0, 1, 2)


def test_places_that_do_not_agree_are_the_branches_of_a_tree():
    ask = DraftAsk(0, SPLIT, 3, nodes=16)
    (tree,) = drafter().propose([ask])
    assert set(assert_tree(tree, ask)) == {
        *((3,), (3, 7), (3, 7, 0), (3, 7, 5)),
        *((4,), (4, 8), (4, 8, 6)),
    }
    assert principal(tree) == drafted(SPLIT, most=3)
    assert drafter().propose([DraftAsk(0, (1, 2, 3, 4, 1, 2), 4, nodes=16)])[0] == [3, 4, 1, 2]
    for nodes, tokens in ((1, (3,)), (3, (3, 7, 0)), (4, (3, 7, 0, 4)), (5, (3, 7, 0, 4, 8))):
        (tree,) = drafter().propose([DraftAsk(0, SPLIT, 3, nodes=nodes)])
        assert tuple(tree)[:nodes] == tokens, nodes
        assert len(tree) <= (2 * nodes if isinstance(tree, DraftTree) else nodes)
    (tree,) = drafter(0.6).propose([DraftAsk(0, SPLIT, 3, nodes=16)])
    assert list(tree) == [3, 7]


def suffix_drafter(text, least=0.0):
    on = SuffixDrafter()
    for slot, earlier in enumerate(((1, 2, 4, 5, 1, 2, 4, 6), (7, 2, 9, 9, 1, 2, 9, 3))):
        on.admit(slot, Request("a", (1,)))
        suffix_drafts(on, earlier, slot=slot)
        on.release(slot)
    on.admit(0, Request("b", tuple(text), drafting=Drafting(min_p=least)))
    return on


def test_shorter_suffixes_and_other_counts_are_the_branches_of_a_tree():
    ask = DraftAsk(0, SPLIT, 4, nodes=16)
    (tree,) = suffix_drafter(SPLIT).propose([ask])
    (run,) = suffix_drafter(SPLIT).propose([DraftAsk(0, SPLIT, 4)])
    paths = assert_tree(tree, ask)
    assert principal(tree)[: len(run)] == run != []
    assert {(3,), (9,)} <= {*paths}
    (tree,) = suffix_drafter(SPLIT, least=0.99).propose([ask])
    assert not tree


def test_a_tree_of_any_text_begins_with_the_run_and_keeps_the_limits():
    text = [(i * i + i // 3) % 5 for i in range(80)]
    for end, (most, nodes) in product(range(1, 80, 7), ((1, 1), (3, 4), (4, 16), (16, 64))):
        for make in (drafter, partial(suffix_drafter, text[:end])):
            ask = DraftAsk(0, tuple(text[:end]), most, nodes)
            (tree,), (run,) = make().propose([ask]), make().propose([DraftAsk(0, ask.tokens, most)])
            assert_tree(tree, ask, offered=2)
            assert principal(tree)[: min(nodes, len(run))] == [*run][:nodes], (end, most, nodes)


def test_what_is_right_of_drafts_is_on_one_path():
    tree = DraftTree((3, 4, 7, 8), (-1, -1, 0, 1))
    for tokens, count in (((3, 7, 9), 2), ((4, 8), 2), ((4, 7), 1), ((5,), 0), ((), 0)):
        assert num_right(tree, tokens) == count
    assert num_right((3, 4), (3, 4, 5)) == 2


def test_first_children_are_the_principal_chain_of_a_tree():
    level_by_level = DraftTree((5, 6, 7, 8, 9, 4), (-1, -1, 1, 0, 3, 0))
    assert level_by_level.principal == (5, 8, 9)
    assert (len(level_by_level), tuple(level_by_level)) == (6, (5, 6, 7, 8, 9, 4))
    assert DraftTree((), ()).principal == ()
