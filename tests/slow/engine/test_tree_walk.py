"""Trees of drafts keep the law of the text: what is emitted, and how often a child is what was chosen."""

from __future__ import annotations

from itertools import pairwise
from math import sqrt

import torch

from gencli.core.events import Token
from gencli.core.request import Drafting
from gencli.core.tree_shapes import DynamicTree
from gencli.engine.engine import Engine
from gencli.speculative.drafter import Drafter, DraftTree
from tests.engine.harness import TOKENIZER, request
from tests.engine.tree_cases import Forest

IDS, LANES, TOKENS = [*b"abcdefghijkl"], 64, 1600
TREE = DraftTree(tuple(b"dfbhacj"), (-1, 0, 0, -1, 3, 3, -1))  # seven nodes, three children of the root


class Same(Drafter):
    """Proposes the tree in each step."""

    def propose(self, asks):
        return [TREE] * len(asks)


def chance(table: torch.Tensor, node: int) -> torch.Tensor:
    """The chance of a child behind a node, from the chances of tokens [..., 12]."""
    places = [IDS.index(t) for t, parent in zip(TREE.tokens, TREE.parents, strict=True) if parent == node]
    return table[..., places].sum(-1)


def test_a_tree_of_seven_nodes_keeps_the_law_and_is_accepted_as_often_as_its_children_are_likely():
    runner = Forest(context=2 * TOKENS, scale=1.0)
    table = runner.table[IDS][:, IDS].double().softmax(-1)  # from a token to the next one
    on = Engine(runner, TOKENIZER, max_batch=LANES, step_tokens=8 * LANES, drafter=Same(), clock=lambda: 0.0)
    chain = f"allowed={IDS} | temperature=1"
    on.submit(
        request("a", chain=chain, max_tokens=TOKENS, n=LANES, drafting=Drafting(tree=DynamicTree(7, 7, 7)))
    )
    roots, steps = dict.fromkeys(range(LANES), 0), list[tuple[int, ...]]()
    for event in on.run():
        runner.plans.clear()
        if isinstance(event, Token):
            places = tuple([IDS.index(token) for token in event.ids])
            steps.append((roots[event.sample], *places))
            roots[event.sample] = places[-1]
    counts = torch.zeros(12, 12, dtype=torch.float64)
    for step in steps:
        for before, after in pairwise(step):
            counts[before, after] += 1
    assert counts.sum() == LANES * TOKENS > 100_000
    due = counts.sum(1, keepdim=True) * table
    assert due.min() > 8
    freedom = counts.numel() - len(counts)
    assert abs(((counts - due) ** 2 / due).sum() - freedom) < 4 * sqrt(2 * freedom)
    once = chance(table, -1)[[step[0] for step in steps]]
    check_rate([len(step) > 2 for step in steps], once)
    deeper = [step for step in steps if len(step) > 2]
    nodes = {
        token: node for node, (token, up) in enumerate(zip(TREE.tokens, TREE.parents, strict=True)) if up < 0
    }
    twice = torch.stack([chance(table[step[1]], nodes[IDS[step[1]]]) for step in deeper])
    check_rate([len(step) > 3 for step in deeper], twice)


def check_rate(accepted: list[bool], chances: torch.Tensor) -> None:
    """That events with these chances came about as often as is due."""
    spread = sqrt((chances * (1 - chances)).sum())
    assert spread > 20
    assert abs(sum(accepted) - chances.sum()) < 4 * spread
