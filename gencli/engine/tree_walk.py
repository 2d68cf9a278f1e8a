"""Trees of draft tokens: the nodes that a step feeds, and the walk down a tree by the tokens that are chosen.

After the walk the step is one whose drafts are a chain: the path that was walked, with the likeliest nodes
behind it. So nothing that comes later in a step knows of trees.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import accumulate
from typing import cast

from gencli.core.request import StepPlan
from gencli.core.tree_shapes import num_straight
from gencli.engine.sequence import Sequence
from gencli.engine.slot_state import ProcessorState
from gencli.engine.step import Step, StepHook
from gencli.models.model_runner import ModelRunner, TreeRunner
from gencli.speculative.drafter import DraftAsk, DraftTree
from processors.graphs import upload_ints
from processors.pipeline import Pipeline
from processors.rows import Rows
from processors.verification import matched


def pruned(tree: DraftTree, ask: DraftAsk, pipeline: Pipeline) -> DraftTree:
    """Return the nodes of a tree that can be verified, each followed by those below it, the likeliest first.

    These are the first `ask.nodes` that a grammar allows, up to the depth `ask.most`.
    """
    lines: dict[int, tuple[int, ...]] = {-1: ()}  # the nodes from the newest token down to one, by that one
    known = set[tuple[int, ...]]()
    for node, parent in enumerate(tree.parents):
        if parent not in lines or len(lines[parent]) == ask.most:
            continue
        line = (*lines[parent], node)
        path = tuple([tree.tokens[each] for each in line])
        status = pipeline.preview(ask.slot, path) if pipeline.previews else ()
        is_refused = status and (len(status) < len(path) or status[-1].document == "broken")
        if is_refused or path in known:
            continue
        lines[node] = line
        known.add(path)
        if len(known) == ask.nodes:
            break
    ordered = sorted(lines.values())
    places = {line: place for place, line in enumerate(ordered, -1)}
    tokens = tuple([tree.tokens[line[-1]] for line in ordered[1:]])
    return DraftTree(tokens, tuple([places[line[:-1]] for line in ordered[1:]]))


def plant(step: Step, trees: Mapping[int, DraftTree]) -> None:
    """Set the `trees` of a step whose drafts are nodes of these trees, by slot, and the parents of its feeds.

    A tree of which no branch is left after cutting is a chain.
    """
    for sequence, drafts in step.sampled:
        tree = trees.get(sequence.slot)
        parents = tree.parents[: len(drafts)] if tree else ()
        if num_straight(parents) < len(parents):
            step.trees[sequence.slot] = DraftTree(drafts, parents)
    feeds = [
        feed._replace(parents=step.trees[feed.lane].parents) if feed.lane in step.trees else feed
        for feed in step.plan.feeds
    ]
    step.plan = replace(step.plan, feeds=tuple(feeds))


class _Path:
    """The path down the drafts of one sequence, as indices of nodes: those walked, then the likeliest ones.

    `start` is the row of the newest token in the step, before those of the nodes.
    """

    def __init__(self, drafts: tuple[int, ...], tree: DraftTree | None, start: int) -> None:
        self._drafts, self._start = drafts, start
        self._parents = tree.parents if tree else (*range(-1, len(drafts) - 1),)
        self._children = {key: node for node, key in enumerate(zip(self._parents, drafts, strict=True))}
        self.nodes, self.drawn = list[int](), list[int]()
        self._follow(0 if drafts else None)

    @property
    def tokens(self) -> tuple[int, ...]:
        return tuple([self._drafts[node] for node in self.nodes])

    @property
    def rows(self) -> list[int]:
        return [self._start, *[self._start + 1 + node for node in self.nodes]]

    def turn(self, valid: list[int]) -> bool:
        """Turn to the node of the last of the tokens that are `valid`; False if there is none."""
        count = len(valid) - 1
        child = self._children.get((self.nodes[count - 1] if count else -1, valid[-1]))
        del self.nodes[count if child is not None else len(self.nodes) :]
        self._follow(child)
        return child is not None

    def _follow(self, node: int | None) -> None:
        """Append a node and those that are the likeliest below it: each is the next one."""
        while node is not None:
            self.nodes.append(node)
            below = node + 1
            node = below if below < len(self._parents) and self._parents[below] == node else None


class DraftWalk(StepHook):
    """Walks the trees of a step: makes its drafts the paths that are chosen, and the lanes hold these."""

    def __init__(self, runner: ModelRunner, state: ProcessorState) -> None:
        super().__init__()
        self._runner, self._state = runner, state

    def wants(self, sequence: Sequence) -> bool:
        return sequence.request.drafting.nodes > 0 and self._runner.spec.trees

    def on_logits(self, step: Step) -> None:
        if step.trees:
            self._rewrite(step, self._walk(step))

    def _walk(self, step: Step) -> list[_Path]:
        """Return the path of each sampled sequence. Sets the rows of the step, and `drawn`.

        Tokens are chosen for the rows of a path, and again where they turned to another one. A choice depends
        on the tokens before it and its position alone, so it is the same again.
        """
        state, device = self._state, step.logits.device
        starts = [0, *accumulate([1 + len(drafts) for _, drafts in step.sampled])]
        paths = [
            _Path(drafts, step.trees.get(sequence.slot), start)
            for (sequence, drafts), start in zip(step.sampled, starts, strict=False)
        ]
        going, rows = [*range(len(paths))], None
        while going:
            rows = self._rows(step, paths, going)
            at = upload_ints([row for index in going for row in paths[index].rows], device)
            logits = step.logits.index_select(0, at).to(state.history.device)
            tokens, turned, first = state.chooser(logits, rows).tolist(), list[int](), 0
            for index, valid in zip(going, matched(tokens, rows), strict=True):
                end = first + len(paths[index].rows)
                paths[index].drawn, first = tokens[first:end], end
                if paths[index].turn(valid):
                    turned.append(index)
            going = turned
        if rows is None or len(rows.counts) < len(paths):
            rows = self._rows(step, paths, [*range(len(paths))])
        step.rows = rows
        step.drawn = [token for path in paths for token in path.drawn]
        return paths

    def _rows(self, step: Step, paths: list[_Path], indices: list[int]) -> Rows:
        slots = [step.sampled[index][0].slot for index in indices]
        drafts = [paths[index].tokens for index in indices]
        return self._state.pipeline.prepare(Rows.build(self._state.history, slots, drafts))

    def _rewrite(self, step: Step, paths: list[_Path]) -> None:
        """Make the step one whose drafts are the tokens of the paths."""
        rows, own = [row for path in paths for row in path.rows], step.own
        step.own = own.index_select(0, upload_ints(rows, own.device))
        if step.logits is own:
            step.logits = step.own
        else:
            step.logits = step.logits.index_select(0, upload_ints(rows, step.logits.device))
        pairs = zip(step.sampled, paths, strict=True)
        step.paths = {s.slot: path.nodes for (s, _), path in pairs if s.slot in step.trees}
        step.sampled[:] = [(s, path.tokens) for (s, _), path in zip(step.sampled, paths, strict=True)]
        feeds, tapped, num_tapped = [], list[int](), 0
        for sequence, feed in zip(step.sequences, step.plan.feeds, strict=True):
            first, nodes = len(feed.tokens) - len(feed.parents), step.paths.get(feed.lane, ())
            places = [*range(first), *[first + node for node in nodes]]
            if feed.lane in step.lanes:
                tapped += [num_tapped + place for place in places]
                num_tapped += len(feed.tokens)
            if feed.parents:
                cast(TreeRunner, self._runner).compact(feed.lane, feed.start + first - 1, nodes)
                dropped = len(feed.tokens) - len(places)
                sequence.num_computed_tokens -= dropped
                tokens = tuple([feed.tokens[place] for place in places])
                feed = feed._replace(tokens=tokens, num_logits=feed.num_logits - dropped, parents=())
            feeds.append(feed)
        step.plan = StepPlan(tuple(feeds), step.plan.num_scored)
        if step.inner is not None and step.inner.taps:
            kept = {
                tap: states.index_select(0, upload_ints(tapped, states.device))
                for tap, states in step.inner.taps.items()
            }
            step.inner = replace(step.inner, taps=kept)
