"""Trees of draft tokens: which nodes they have, and that each is what a chain on its path would be."""

from __future__ import annotations

import random
from functools import partial
from itertools import product

import pytest
import torch

from gencli.core.request import Drafting, Feed, StepPlan
from gencli.core.tree_shapes import AUTO_TREE, DynamicTree, StaticTree, read_tree_shape
from gencli.models.decoder.decoder import DecoderRunner
from gencli.speculative.draft_model import DraftSampler, ModelDrafter
from gencli.speculative.draft_trees import growing_tree
from gencli.speculative.drafter import DraftAsk
from processors.base import Admission, Env
from processors.chain import Chain
from processors.history import History
from processors.pipeline import Pipeline
from processors.sampler import Sampler
from tests.engine.harness import request
from tests.models.native import native_decoder
from tests.models.tiny_models import VOCAB, build_native
from tests.speculative.head_cases import SHAPE, Drafts
from tests.speculative.test_drafter import assert_tree, principal

FIXED = read_tree_shape("[[0],[1],[2],[0,0],[0,1],[1,0],[0,0,0],[0,0,1],[1,0,0],[0,1,0],[0,0,0,0]]")
ENDING = 7


def likely(path, *, vocab=12, seed=0):
    """The tokens behind a path with their log-probabilities, the most likely first."""
    draw = random.Random(f"{seed} {path}")
    logits = torch.tensor([2 * draw.gauss(0, 1) for _ in range(vocab)])
    values, ids = logits.log_softmax(-1).sort(descending=True)
    return [*zip(ids.tolist(), values.tolist(), strict=True)]


def grown(shape, *, most, nodes, seed=0):
    """The drafts of a tree that grows by `likely`."""
    tree = growing_tree(shape, DraftAsk(0, (), most, nodes), most)
    while tree.frontier:
        tree.grow(
            [likely(tree.path(node), seed=seed) for node in tree.frontier], lambda token: token != ENDING
        )
        if tree.frontier:
            tree.level()
    return tree.drafts()


def eagle2(width, depth, nodes, seed):
    """The paths that EAGLE-2 keeps, in the words of its paper: expand, then rerank."""
    level, found = [((), 0.0)], []
    for _ in range(depth):
        level = [
            ((*path, token), score + more)
            for path, score in level
            for token, more in likely(path, seed=seed)[:width]
        ]
        found += level
        level = [(path, score) for path, score in level if path[-1] != ENDING]
        level = sorted(level, key=lambda entry: -entry[1])[:width]
    return {path for path, _ in sorted(found, key=lambda entry: -entry[1])[:nodes]}


@pytest.mark.parametrize("sizes", [(1, 4, 9), (2, 3, 6), (4, 5, 16), (8, 6, 60), (10, 3, 5), (12, 1, 64)])
def test_a_dynamic_tree_has_the_nodes_of_eagle_2(sizes):
    for seed in range(20):
        drafts = grown(DynamicTree(*sizes), most=8, nodes=64, seed=seed)
        assert {*assert_tree(drafts, DraftAsk(0, (), sizes[1], 64))} == eagle2(*sizes, seed)


def test_a_static_tree_has_the_ranks_of_its_paths():
    drafts = grown(FIXED, most=8, nodes=64)
    wanted = []
    for ranks in FIXED.paths:
        path = ()
        for rank in ranks:
            if ENDING in path:
                break
            path = (*path, likely(path)[rank][0])
        else:
            wanted.append(path)
    assert assert_tree(drafts, DraftAsk(0, (), 8, 64)) == wanted


def test_limits_cut_a_tree_and_none_at_all_makes_a_chain():
    for shape, most, nodes in product((FIXED, DynamicTree(4, 6, 30), AUTO_TREE), (1, 2, 5), (1, 4, 16)):
        drafts = grown(shape, most=most, nodes=nodes)
        assert_tree(drafts, DraftAsk(0, (), most, nodes))
        chain = grown(shape, most=most, nodes=0)
        assert [*chain] == principal(grown(DynamicTree(1, most, most), most=most, nodes=64))
        assert principal(drafts) == [*chain][: len(principal(drafts))]
    assert len(grown(AUTO_TREE, most=4, nodes=16)) == 16


CHAINS = {
    "greedy": ("temperature=0", "greedy"),
    "gumbel": ("temperature=0.8", "gumbel"),
    "inverse": ("temperature=0.8 | top_p=0.95", "multinomial"),
    "penalties": ("repetition=1.6 | frequency=0.8 | temperature=1.2 | top_k=9", "gumbel"),
}


def sampler(chain="temperature=0", draw="greedy", *, width=40, slots=2):
    history, draws = History(slots=slots, device=torch.device("cpu")), Sampler()
    pipeline = Pipeline(Env(width))
    for slot in range(slots):
        history.admit(slot, [7, 8, 9], seed=slot)
        draws.admit(slot, draw)
        pipeline.admit(slot, Chain.parse(chain).active(), Admission((7, 8, 9)))
    return DraftSampler(pipeline, draws, history)


@pytest.mark.parametrize("kind", CHAINS)
@pytest.mark.parametrize("width", [40, 8192])
def test_the_first_of_a_ranking_is_what_a_chain_drafts_behind_the_same_path(kind, width):
    choose = sampler(*CHAINS[kind], width=width)
    slots, paths = [0, 0, 0, 1, 1, 0], [(), (3,), (4,), (), (3, 3), (3, 5)]
    logits = 3 * torch.randn(len(slots), width, generator=torch.Generator().manual_seed(1))
    rankings = choose.rank(logits, slots, paths, count=6, least=[0.0] * 6)
    for row, (slot, path) in enumerate(zip(slots, paths, strict=True)):
        (choice,) = choose(logits[row : row + 1], [slot], [path], least=[0.0], apart=[False])
        tokens, scores = zip(*rankings[row], strict=True)
        assert tokens[0] == choice.token
        assert len({*tokens}) == len(tokens) == (6 if kind != "inverse" else len(tokens)) > 1
        assert [*scores] == sorted(scores, reverse=True)
        alone = choose.rank(logits[row : row + 1], [slot], [path], count=6, least=[0.0])
        assert alone == [rankings[row]]


def test_greedy_rankings_are_the_most_likely_tokens_with_their_log_probabilities():
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(2))
    found = sampler().rank(logits, [0, 1, 0], [(), (), (5,)], count=5, least=[0.0] * 3)
    for row, ranking in zip(logits, found, strict=True):
        values, ids = row.log_softmax(-1).topk(5)
        assert [token for token, _ in ranking] == ids.tolist()
        assert [score for _, score in ranking] == pytest.approx(values.tolist())


def test_noise_ranks_first_what_the_next_draw_would_take():
    """Of Gumbel noise the second best is what is drawn if the best is masked."""
    choose = sampler("temperature=0.8", "gumbel")
    logits = torch.randn(1, 40, generator=torch.Generator().manual_seed(3))
    (((first, _), (second, _), *_),) = choose.rank(logits, [0], [()], count=4, least=[0.0])
    without = logits.clone()
    without[0, first] = -torch.inf
    (choice,) = choose(without, [0], [()], least=[0.0], apart=[False])
    assert choice.token == second


def test_improbable_tokens_and_rows_without_any_are_left_out():
    logits = torch.tensor([[5.0, 4.0, 0.0, *[-9.0] * 37], [-torch.inf] * 40])
    found = sampler().rank(logits, [0, 1], [(), ()], count=4, least=[0.05, 0.0])
    assert [[token for token, _ in ranking] for ranking in found] == [[0, 1], []]


def bound(drafter, *, shape, texts, chain="temperature=0", draw="greedy", width):
    drafter.bind(sampler(chain, draw, width=width, slots=4))
    for slot in texts:
        drafter.admit(slot, request("x", drafting=Drafting(tree=shape)))
    return drafter


def watch(drafter):
    """The growing list of logits that are ranked, each with its slot and path."""
    rank, seen = drafter._choose.rank, []

    def watched(logits, slots, paths, **options):
        seen.extend(zip(logits.clone(), slots, paths, strict=True))
        return rank(logits, slots, paths, **options)

    drafter._choose.rank = watched
    return seen


SHAPES = (FIXED, DynamicTree(3, 4, 12), AUTO_TREE)


@pytest.mark.parametrize(
    "kind", ["eagle1", "eagle3", "deepseek llama", "dspark", "dspark of masks", "dspark speculators"]
)
def test_nodes_of_a_head_have_the_logits_of_its_reference_on_their_paths(kind, tmp_path):
    drafts, texts = Drafts.of(kind, tmp_path), {0: [5, 3, 8, 8, 1], 2: [9, 1, 4]}
    rows = []
    for shape in SHAPES:
        drafter = bound(drafts.fresh(), shape=shape, texts=texts, width=SHAPE.vocab)
        drafter.feed([drafts.features(slot, text, 0, len(text) - 1) for slot, text in texts.items()])
        seen = watch(drafter)
        asks = [DraftAsk(slot, text, 4, 16 if slot == 0 else 0) for slot, text in texts.items()]
        found = drafter.propose(asks)
        rows += seen
        chains = drafter.propose([DraftAsk(slot, text, 4) for slot, text in texts.items()])
        for ask, tree, chain in zip(asks, found, chains, strict=True):
            assert_tree(tree, ask)
            assert principal(tree) == [*chain][: len(principal(tree))]
        assert drafter.propose(asks)[0].tokens == found[0].tokens  # nothing of a tree is left
        assert len(found[0]) > 8
    for row, slot, path in rows:
        expected = drafts.expected(texts[slot], path)[-1]
        torch.testing.assert_close(row, expected, rtol=1e-5, atol=1e-4)


def test_a_head_of_several_layers_drafts_chains(tmp_path):
    drafts, text = Drafts.of("deepseek llama of three layers", tmp_path), [5, 3, 8, 8, 1]
    drafter = bound(drafts.fresh(), shape=FIXED, texts=[0], width=SHAPE.vocab)
    drafter.feed([drafts.features(0, text, 0, 4)])
    (run,) = drafter.propose([DraftAsk(0, text, 3, 16)])
    assert isinstance(run, list)
    assert not drafter.has_trees


@pytest.mark.parametrize("shape", SHAPES)
def test_medusa_has_one_ranking_of_a_depth(shape, tmp_path):
    drafts, text = Drafts.of("medusa", tmp_path), [5, 3, 8, 8, 1]
    drafter = bound(drafts.fresh(), shape=shape, texts=[0], width=SHAPE.vocab)
    drafter.feed([drafts.features(0, text, 0, 4)])
    ask = DraftAsk(0, text, 3, 10)
    (tree,), (chain,) = drafter.propose([ask]), drafter.propose([DraftAsk(0, text, 3)])
    paths = assert_tree(tree, ask)
    best = drafts.expected(text, [0, 0])[:3].sort(dim=-1, descending=True).indices
    assert principal(tree) == [*chain][: len(principal(tree))]
    if isinstance(shape, StaticTree):
        short = [ranks for ranks in FIXED.paths if len(ranks) <= 3]
        assert paths == [tuple(int(best[i, rank]) for i, rank in enumerate(ranks)) for ranks in short]
    else:
        assert all(token in best[depth, :5] for path in paths for depth, token in enumerate(path))


@pytest.mark.parametrize("chain", ["temperature=0", "repetition=1.5 | temperature=0"])
def test_nodes_of_a_draft_model_have_its_logits_behind_their_paths(chain):
    decoder = native_decoder(build_native("llama"))
    runner, plain = DecoderRunner(decoder, max_lanes=2), DecoderRunner(decoder, max_lanes=1)
    texts, ask = {0: (5, 3, 8, 8, 1), 1: (9, 1, 4)}, partial(DraftAsk, most=4)
    for shape in SHAPES:
        make = partial(bound, shape=shape, texts=texts, chain=chain, width=VOCAB)
        drafter = make(ModelDrafter(runner))
        seen = watch(drafter)
        tree, run = drafter.propose([ask(0, texts[0], nodes=16), ask(1, texts[1])])
        assert len(assert_tree(tree, ask(0, texts[0], nodes=16))) > 8
        for row, slot, path in seen:
            logits = plain.forward(StepPlan((Feed(0, 0, (*texts[slot], *path)),)))
            plain.release(0)
            torch.testing.assert_close(row, logits[0], rtol=1e-5, atol=1e-5)
        # What was fed behind a branch is no text, whatever comes next.
        longer = (*texts[0], tree.tokens[0], tree.tokens[1])
        again = drafter.propose([ask(0, longer, nodes=16), ask(1, texts[1])])
        fresh = make(ModelDrafter(DecoderRunner(decoder, max_lanes=2)))
        assert fresh.propose([ask(0, longer, nodes=16)])[0].tokens == again[0].tokens
        assert [*again[1]] == [*run]
