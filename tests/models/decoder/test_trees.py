"""Trees of draft tokens in one pass: each node has the logits of a text that ends with it, beside any others.

The keys and values of a path that is kept are those of a text that was read as a whole.
"""

from __future__ import annotations

from functools import cache

import pytest
import torch

from gencli.core.request import Feed, StepPlan, depths_of
from gencli.models.decoder.attention_plans import SdpaPlan, apart, device_plan
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.kv.lane_buffers import cells_of
from tests.models.cases import case
from tests.models.native import load_native, native_decoder
from tests.models.tiny_models import VOCAB, build_native

_DRAW = torch.Generator().manual_seed(11)
NODES = (
    (-1, 0, 1, -1, 3, 3, 0),  # branches at the root, within the principal chain and off it
    (-1, 0, 1, 2, 3),  # a chain
    (-1, -1, -1),
    (-1, *range(-1, 35)),  # two chains deeper than a window
    (-1, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 8, 9, 10, 11),
)


def tokens(count: int) -> tuple[int, ...]:
    return tuple(torch.randint(0, VOCAB, (count,), generator=_DRAW).tolist())


def path(parents: tuple[int, ...], node: int) -> list[int]:
    """The nodes from the first one to this one."""
    return [*path(parents, parents[node]), node] if node >= 0 else []


@cache
def decoder(kind: str):
    return native_decoder(build_native(kind))


def behind(run: DecoderRunner, start: int, tokens: tuple[int, ...]) -> torch.Tensor:
    """The logits [V] behind more tokens in lane 2, of which it keeps the first `start`."""
    run.truncate(2, start)
    for first in range(0, len(tokens), 8):
        logits = run.forward(StepPlan((Feed(2, start + first, tokens[first : first + 8]),)))
    return logits[-1]


def check_nodes(run: DecoderRunner, parents: tuple[int, ...], length: int, close: float) -> None:
    text, nodes, more = tokens(length), tokens(len(parents)), tokens(3)
    run.forward(StepPlan((Feed(0, 0, text[:-2], 0),)))
    others = Feed(1, 0, tokens(9), 4), Feed(3, 0, tokens(30), 1)  # a chain of drafts and a prompt
    tree = Feed(0, length - 2, (*text[-2:], *nodes), 1 + len(nodes), parents=parents)
    logits = run.forward(StepPlan((others[0], tree, others[1])))
    own = logits[4 : 4 + 1 + len(nodes)]
    run.forward(StepPlan((Feed(2, 0, text[:-1], 0),)))
    for row, node in enumerate([-1, *range(len(nodes))]):
        along = (text[-1], *[nodes[other] for other in path(parents, node)])
        assert torch.allclose(own[row], behind(run, length - 1, along), rtol=0, atol=close), node
    for feed, rows in zip(others, (logits[:4], logits[-1:]), strict=True):
        run.release(feed.lane)
        assert torch.equal(run.forward(StepPlan((feed,))), rows)
    for kept in (path(parents, len(parents) - 1), path(parents, len(parents) // 2), []):
        along = tuple([nodes[other] for other in kept])
        expected = behind(run, length - 1, (text[-1], *along, *more))
        run.fork(0, 1)
        run.compact(1, length - 1, kept)
        follow = run.forward(StepPlan((Feed(1, length + len(kept), more, 1),)))[0]
        assert torch.allclose(follow, expected, rtol=0, atol=close)


@pytest.mark.parametrize("kind", ["llama", "mistral", "gemma2", "gemma3", "phi3", "gpt_oss"])
def test_each_node_has_the_logits_of_its_path(kind: str) -> None:
    for parents in NODES:
        for length in (3, 40):
            with case(parents, length):
                check_nodes(DecoderRunner(decoder(kind), max_lanes=4), parents, length, 1e-5)


def test_compiled_kernels_and_narrow_formats(tmp_path) -> None:
    build_native("llama").save_pretrained(tmp_path)
    for options, close in (
        ({"quantize": "int8"}, 0.01),  # activations are rounded
        ({"kv_dtype": "int8"}, 0.03),
        ({"dtype": "bfloat16"}, 0.1),
    ):
        for parents in NODES:
            with case(options, parents):
                check_nodes(load_native(tmp_path, max_lanes=4, **options), parents, 40, close)


def test_a_tree_may_grow_level_by_level() -> None:
    """As one that a draft head asks for: its first levels are in the lane already."""
    for kind in ("llama", "mistral"):
        text, parents = tokens(30), (-1, -1, 0, 0, 1, 2, 2, 5, 7, 8)
        nodes, depths = tokens(len(parents)), depths_of(parents)
        one, other = (DecoderRunner(decoder(kind), max_lanes=1) for _ in range(2))
        whole = one.forward(StepPlan((Feed(0, 0, (*text, *nodes), len(nodes), parents=parents),)))
        other.forward(StepPlan((Feed(0, 0, text, 0),)))
        rows, end = [], 0
        for level in range(1, max(depths) + 1):
            start, end = end, end + depths.count(level)
            feed = Feed(0, len(text) + start, nodes[start:end], end - start, parents=parents[:end])
            rows.append(other.forward(StepPlan((feed,))))
        assert torch.allclose(torch.cat(rows), whole, rtol=0, atol=1e-5)


def test_the_plan_for_cuda_attends_as_that_for_other_devices() -> None:
    heads, kv_heads, width = 4, 2, 16
    trees = [
        Feed(number, 20, tokens(2 + len(parents)), parents=parents) for number, parents in enumerate(NODES)
    ]
    feeds = [*trees, Feed(len(NODES), 7, tokens(3))]
    rows, places = cells_of(feeds)
    cells = torch.tensor(rows), torch.tensor(places)
    held = torch.randn(len(feeds), 2 * kv_heads, 128, width, generator=_DRAW)
    qkv = torch.randn(len(rows), heads + 2 * kv_heads, width, generator=_DRAW)
    for window, cap, is_fixed in ((None, None, True), (6, None, False), (None, 2.0, True)):
        how = {"window": window, "cap": cap, "scale": 0.3}
        plain, branches = SdpaPlan(list(apart(feeds)), cells, torch.float32), list(apart(feeds))
        buffer = held.clone()
        plain.store(qkv[:, heads:], buffer)
        expected = plain.attend(qkv, buffer, **how)
        own = held.clone()
        plan = device_plan(branches, cells, 128, is_fixed=is_fixed)
        found = plan.attend_fed(qkv.clone(), own, None, None, is_whole=False, **how)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(own, buffer)


def test_the_positions_of_nodes_are_their_depths() -> None:
    feed = Feed(0, 7, (1, 2, 3, 4, 5), parents=(-1, 0, -1))
    assert feed.positions == (7, 8, 9, 10, 9)
    assert Feed(0, 10, (4, 5), parents=(-1, 0, -1)).positions == (10, 9)  # the first node is in the lane
    assert Feed(0, 3, (1, 2)).positions == (3, 4)
