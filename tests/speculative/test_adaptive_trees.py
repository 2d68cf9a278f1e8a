"""Whether a step gets a tree, a chain or no drafts, by what they cost and how often they are accepted."""

import random

import pytest

from gencli.core.request import Drafting
from gencli.core.tree_shapes import MAX_NODES, read_tree_shape
from gencli.speculative.adaptive_drafts import AdaptiveDrafter
from gencli.speculative.drafter import DraftAsk, Drafter, DraftTree, MeasuredStep
from tests.engine.harness import request
from tests.speculative.timed import Ticking


class Simulated(Drafter):
    """Proposes what it is asked for, with a cost for each pass."""

    is_autoregressive = True

    def __init__(self, clock, cost):
        self._clock, self._cost, self.asked = clock, cost, []

    def propose(self, asks):
        self._clock.move(self._cost * max(ask.most for ask in asks))
        self.asked += [(ask.most, ask.nodes) for ask in asks]
        return [self._run(ask) for ask in asks]

    def _run(self, ask):
        if not ask.nodes:
            return (1,) * ask.most
        return DraftTree(
            tuple(range(1, ask.nodes + 1)), (*range(-1, ask.most - 1), *(-1,) * (ask.nodes - ask.most))
        )


def simulated(tree, *, chain, branched, row, cost=0.02, steps=400, tokens=None, nodes=MAX_NODES):
    """What is asked for in so many steps, and tokens per second relative to plain steps.

    A draft token is accepted with the probability `chain` in a chain, `branched` in a tree. A step takes 1,
    and `row` more for each draft token.
    """
    clock, draw, made = Ticking(), random.Random(0), 0
    inner = Simulated(clock, cost)
    one = AdaptiveDrafter(inner, clock=clock)
    text = [1, 2, 3]
    one.admit(0, request("abc", drafting=Drafting(tokens=tokens, tree=read_tree_shape(tree))))
    for _ in range(steps):
        (run,) = one.propose([DraftAsk(0, text, 20, nodes)])
        depth = inner.asked[-1][0] if run else 0
        rate, accepted = branched if isinstance(run, DraftTree) else chain, 0
        while accepted < depth and draw.random() < rate:
            accepted += 1
        if isinstance(run, DraftTree):  # which of them are on the principal chain
            stood = [draw.random() < chain / branched for _ in range(accepted)]
            right = next((i for i, each in enumerate(stood) if not each), accepted)
            text += [*run.principal[:right], *[0] * (accepted - right), 0]
        if run:
            one.observe(0, proposed=depth, accepted=accepted)
        seconds = 1 + row * len(run)
        clock.move(seconds)
        one.measure(MeasuredStep(1, len(run), accepted, seconds))
        made += 1 + accepted
    return inner.asked, made / clock.now


def share_of_trees(asked):
    late = asked[len(asked) // 2 :]
    return sum(nodes > 0 for _, nodes in late) / len(late)


def test_auto_takes_trees_where_rows_cost_little_and_chains_where_they_cost_much():
    asked, gain = simulated("auto", chain=0.6, branched=0.85, row=0.002)
    assert share_of_trees(asked) > 0.9
    assert gain > 1.15 * simulated("off", chain=0.6, branched=0.85, row=0.002)[1]
    asked, gain = simulated("auto", chain=0.6, branched=0.85, row=0.3)
    assert share_of_trees(asked) < 0.1
    assert gain > 0.97 * simulated("off", chain=0.6, branched=0.85, row=0.3)[1]
    asked, gain = simulated("auto", chain=0.6, branched=0.6, row=0.03)  # branches that are never right
    assert share_of_trees(asked) < 0.2
    assert gain > 0.95 * simulated("off", chain=0.6, branched=0.6, row=0.03)[1]


def test_without_the_option_or_a_model_that_takes_trees_there_are_chains():
    for tree, nodes in (("off", MAX_NODES), ("auto", 0), ("4x5x16", 0), ("[[0],[1]]", 0)):
        asked, _ = simulated(tree, chain=0.6, branched=0.9, row=0.0, nodes=nodes)
        assert {nodes for _, nodes in asked} == {0}, tree


def test_a_shape_is_taken_whole_or_not_at_all():
    for tree, sizes in (("4x5x16", (5, 16)), ("[[0],[1],[0,0]]", (2, 3))):
        asked, gain = simulated(tree, chain=0.0, branched=0.8, row=0.002)
        assert {*asked} == {sizes}, tree
        assert gain > 1.5
        assert len(asked) > 300
        _, gain = simulated(tree, chain=0.0, branched=0.02, row=0.05)
        assert gain > 0.93, tree  # a drafter that is never right is left


@pytest.mark.parametrize("tree", ["auto", "4x5x16"])
def test_a_drafter_that_is_never_right_is_left_within_fifty_steps(tree):
    asked, gain = simulated(tree, chain=0.0, branched=0.0, row=0.01, steps=2000)
    assert len(asked) < 100
    assert gain > 0.97


def test_a_fixed_number_of_draft_tokens_fixes_the_tree():
    assert {*simulated("auto", chain=0.0, branched=0.0, row=1.0, tokens=3)[0]} == {(3, 12)}
    assert {*simulated("auto", chain=0.0, branched=0.0, row=1.0, tokens=20)[0]} == {(20, 64)}
    assert {*simulated("4x5x16", chain=0.0, branched=0.0, row=1.0, tokens=3)[0]} == {(3, 16)}
