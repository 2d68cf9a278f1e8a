"""Attention by bags: equal to the plain formula, and with the same bits in any company.

The share of a sink, in all its forms.
"""

from itertools import product

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gencli.core.request import Feed, StepPlan
from gencli.models.decoder.attention_plans import BagTables, Cells, dense_keys
from gencli.models.decoder.decoder import DecoderRunner
from gencli.models.decoder.kernels.attention import reduced, shares
from tests.models.cases import case
from tests.models.native import native_decoder
from tests.models.tiny_models import build_native

HEADS, GROUP, WIDTH, ROWS, CAPACITY = 2, 3, 16, 4, 512
LENGTHS = (1, 63, 64, 65, 200, 500)
SCALE = 0.3
_NOISE = torch.Generator().manual_seed(4)


def filled() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """A buffer that was written token by token, and its keys and values [rows, Hkv, C, D]."""
    buffer = torch.zeros(ROWS, 2 * HEADS, CAPACITY, WIDTH)
    held = torch.randn(ROWS, CAPACITY, 2 * HEADS, WIDTH, generator=_NOISE)
    cells = Cells(buffer.shape).of([(row, place) for row in range(ROWS) for place in range(CAPACITY)])
    buffer.view(-1).scatter_(0, cells, held.flatten())
    keys, values = held.transpose(1, 2).split(HEADS, 1)
    return buffer, keys, values


def test_bags_are_attention_and_do_not_see_each_other() -> None:
    for window, (cap, has_sinks) in product([None, 5, 100], [(None, False), (2.0, False), (None, True)]):
        with case(window, cap, has_sinks):
            buffer, keys, values = filled()
            rows = [number % ROWS for number in range(len(LENGTHS))]
            queries = torch.randn(len(rows), HEADS * GROUP, WIDTH, generator=_NOISE)
            sinks = torch.randn(HEADS * GROUP, generator=_NOISE) if has_sinks else None
            tables = BagTables(HEADS * GROUP, SCALE)
            together = tables.bags(rows, LENGTHS, buffer.shape, window, slot=0).attend(
                queries, buffer, cap, sinks
            )
            for number, (row, end) in enumerate(zip(rows, LENGTHS, strict=True)):
                query = queries[number : number + 1]
                alone = tables.bags([row], [end], buffer.shape, window, slot=0).attend(
                    query, buffer, cap, sinks
                )
                assert torch.equal(alone[0], together[number])
                seen = slice(max(0, end - window) if window else 0, end)
                scores = query.view(HEADS, GROUP, WIDTH) @ keys[row, :, seen].transpose(1, 2) * SCALE
                if cap is not None:
                    scores = cap * (scores / cap).tanh()
                if sinks is not None:
                    scores = torch.cat([scores, sinks.view(HEADS, GROUP, 1)], -1)
                expected = scores.softmax(-1)[..., : values[row, 0, seen].shape[0]] @ values[row, :, seen]
                torch.testing.assert_close(alone.view(HEADS, GROUP, WIDTH), expected, rtol=1e-5, atol=1e-5)


def test_keys_leave_their_tiles_in_order() -> None:
    buffer, keys, _ = filled()
    for first, end in ((0, 1), (0, 130), (70, 500)):
        assert torch.equal(dense_keys(buffer, 2, first, end)[0], keys[2, :, first:end])


class _Calls(TorchDispatchMode):
    """Counts calls of PyTorch's operators."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, call, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.count += 1
        return call(*args, **(kwargs or {}))


def calls(num_layers: int, num_lanes: int) -> int:
    """The calls of a decode step of the first layers of a Llama."""
    decoder = native_decoder(build_native("llama")).first(num_layers)
    runner = DecoderRunner(decoder, max_lanes=num_lanes)
    with torch.inference_mode():
        for start, tokens in ((0, (1, 2, 3)), (3, (4,))):
            runner.forward(StepPlan(tuple(Feed(lane, start, tokens) for lane in range(num_lanes))))
        with _Calls() as counted:
            runner.forward(StepPlan(tuple(Feed(lane, 4, (5,)) for lane in range(num_lanes))))
    return counted.count


def test_a_decode_step_makes_few_calls_whatever_the_number_of_lanes() -> None:
    for lanes in [1, 8]:
        with case(lanes):
            one, two = calls(1, lanes), calls(2, lanes)
            assert two - one <= 36  # a layer; 19 of them compute, the others are views
            assert one - (two - one) <= 30


def test_tables_of_bounded_size_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = native_decoder(build_native("gemma3"))
    prompts = [tuple(range(1, length)) for length in (5, 40, 3, 70, 16)]  # those of 39 and 69 are no bags

    def logits() -> torch.Tensor:
        runner = DecoderRunner(decoder, max_lanes=len(prompts))
        feeds = [Feed(lane, 0, tokens) for lane, tokens in enumerate(prompts)]
        first = runner.forward(StepPlan(tuple(feeds)))
        more = tuple(Feed(lane, len(tokens), (lane,)) for lane, tokens in enumerate(prompts))
        return torch.cat([first, runner.forward(StepPlan(more))])

    expected = logits()
    monkeypatch.setattr("gencli.models.decoder.attention_plans._MAX_NUMBERS", 1000)
    assert torch.equal(logits(), expected)


SINKS = torch.tensor([0.5, -3.0, 90.0])


def test_shares_and_the_share_of_the_sink_are_one_in_all() -> None:
    scores = torch.randn(2, 3, 7, generator=torch.Generator().manual_seed(1)) * 4
    scores[0, :, 5:] = -torch.inf  # hidden keys
    found = shares(scores, SINKS[:, None])
    whole = scores.exp().sum(-1, keepdim=True) + SINKS[:, None].exp()
    torch.testing.assert_close(found, scores.exp() / whole)
    assert torch.equal(shares(scores, None), scores.softmax(-1))


def test_attention_that_had_no_sinks_is_reduced_by_their_shares() -> None:
    noise = torch.Generator().manual_seed(2)
    scores, values = torch.randn(3, 4, 7, generator=noise), torch.randn(3, 7, 5, generator=noise)
    plain, expected = (
        (shares(scores, sinks) @ values).transpose(0, 1) for sinks in (None, SINKS[:, None, None])
    )
    torch.testing.assert_close(reduced(plain, scores.logsumexp(-1), SINKS), expected)
    assert reduced(plain.bfloat16(), scores.logsumexp(-1), SINKS).dtype == torch.bfloat16
