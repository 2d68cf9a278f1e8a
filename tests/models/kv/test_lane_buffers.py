"""The KV cache: what is written to a lane is read back, copied, wiped, and kept while buffers grow.

Keys and values in narrow formats: their errors, and what is beyond their range. The shapes of decode steps:
which rows they have, and how much room their buffers.
"""

import pytest
import torch
import transformers as hf
from torch import Tensor

from gencli.core.request import Feed, StepPlan
from gencli.models.kv import lane_buffers as module
from gencli.models.kv.lane_batches import make_padded_batch
from gencli.models.kv.lane_buffers import (
    LaneLengths,
    as_stored,
    is_drafted_step,
    room_for,
    roomy,
    step_rows,
    stored_width,
    widened,
)
from gencli.models.kv.shared_cache import LaneCache, can_crop, fits_lanes
from tests.models.cases import case
from tests.models.tiny_models import base, build

LAYERS, HEADS, SIZE = 2, 3, 4
CPU = torch.device("cpu")


class Lanes:
    """A cache of four lanes, and the keys that each layer is given."""

    def __init__(self) -> None:
        config = hf.LlamaConfig(**base(num_hidden_layers=LAYERS))
        self.lengths = LaneLengths(max_lanes=4, context=4096, num_ids=100)
        self.cache = LaneCache(config, self.lengths)
        self._noise = torch.Generator().manual_seed(0)

    def feed(self, *feeds: tuple[int, int]) -> tuple[list[Tensor], list[Tensor]]:
        """Feed (lane, number of tokens); the keys [B, H, Q, D] of each layer, and what the layer reads."""
        plan = StepPlan(tuple(Feed(lane, self.lengths[lane], (1,) * count) for lane, count in feeds))
        seated = self.cache.store.seat(plan.feeds)
        batch = make_padded_batch(seated, CPU, room=room_for(seated))
        self.cache.batch = batch
        shape = (len(feeds), HEADS, batch.ids.shape[1], SIZE)
        given = [torch.randn(shape, generator=self._noise) for _ in range(LAYERS)]
        read = [self.cache.update(keys, -keys, layer) for layer, keys in enumerate(given)]
        assert all(torch.equal(keys, -values) for keys, values in read)
        self.lengths.advance(plan)
        return given, [keys.clone() for keys, _ in read]


def test_each_layer_reads_what_its_lanes_were_given_without_pads() -> None:
    lanes = Lanes()
    first, read = lanes.feed((0, 3), (1, 3))
    assert all(map(torch.equal, first, read))
    second, read = lanes.feed((0, 1), (1, 1))
    both = [torch.cat(parts, 2) for parts in zip(first, second, strict=True)]
    assert all(map(torch.equal, both, read))
    lanes = Lanes()
    given, _ = lanes.feed((0, 4), (2, 2))
    _, read = lanes.feed((2, 1))
    assert torch.equal(read[0][0, :, :2], given[0][1, :, 2:])


@pytest.mark.parametrize("step", [2, 256])
def test_buffers_that_grow_keep_what_lanes_hold(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STEP", step)
    lanes = Lanes()
    first, _ = lanes.feed((0, 2))
    lanes.feed((1, 7), (3, 7))
    _, read = lanes.feed((0, 1))
    assert torch.equal(read[1][:, :, :2], first[1])


def test_a_fork_has_the_tokens_of_its_source_and_goes_on_alone() -> None:
    lanes = Lanes()
    first, _ = lanes.feed((0, 3))
    lanes.cache.store.fork(0, 2)
    lanes.lengths.fork(0, 2)
    lanes.feed((0, 1))
    second, read = lanes.feed((2, 1))
    assert torch.equal(read[0], torch.cat([first[0], second[0]], 2))


def test_a_lane_that_is_released_leaves_nothing_to_the_next() -> None:
    lanes = Lanes()
    lanes.feed((0, 5))
    lanes.lengths.truncate(0, 2)  # rejected drafts
    lanes.cache.store.wipe(0)
    lanes.lengths.release(0)
    lanes.feed((1, 1))  # the row that lane 0 had
    buffers = [buffer for layer in lanes.cache.layers for buffer in layer.buffers]
    assert all((buffer.data[0, :, 1:] == 0).all() for buffer in buffers)


def test_the_cache_tells_the_lengths_of_its_longest_lane() -> None:
    lanes = Lanes()
    assert (lanes.cache.get_seq_length(), lanes.cache.is_initialized) == (0, False)
    lanes.feed((0, 3), (1, 3))
    assert lanes.cache.get_mask_sizes(3, 0) == (3, 0)
    lanes.feed((0, 1), (1, 1))
    assert (lanes.cache.get_seq_length(), lanes.cache.is_initialized) == (3, True)
    assert lanes.cache.get_query_offset() == 3


def test_models_are_told_apart_by_what_their_layers_cache() -> None:
    for kind, lanes, crop in [
        ("llama", True, True),
        ("gemma3", True, False),
        ("falcon_h1", False, False),
        ("mamba", False, False),
    ]:
        with case(kind, lanes, crop):
            config = build(kind).config
            assert (fits_lanes(config), can_crop(config)) == (lanes, crop)


def back(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    stored = as_stored(values, dtype)
    assert stored.shape[-1] == stored_width(dtype, values.shape[-1])
    return widened(stored, values.dtype)


def test_eight_bits_have_the_largest_value_of_a_token_and_head_exactly() -> None:
    values = (
        torch.randn(5, 4, 64, generator=torch.Generator().manual_seed(0))
        * 10.0 ** torch.arange(-2, 2)[:, None]
    )
    values[1, 2], values[2, 3, 7] = 0.0, 3e38
    made, largest = back(values, torch.int8), values.abs().amax(-1, True)
    assert ((made - values).abs() <= largest * (0.5001 / 127)).all()
    torch.testing.assert_close(made.abs().amax(-1, True), largest)


def test_fp8_has_three_bits_behind_the_first_from_2_to_the_minus_6_to_448() -> None:
    values = torch.logspace(-6, 8.8, 3000, base=2)
    made = back(torch.cat([values, -values]), torch.float8_e4m3fn)
    assert ((made.abs() / values.repeat(2) - 1).abs() <= 1 / 16).all()
    small = torch.linspace(-(2.0**-6), 2.0**-6, 999)
    assert ((back(small, torch.float8_e4m3fn) - small).abs() <= 2.0**-10).all()
    assert back(torch.tensor([449.0, -1e30]), torch.float8_e4m3fn).tolist() == [448.0, -448.0]


def test_states_of_16_bits_are_stored_as_narrowly() -> None:
    for dtype in [torch.bfloat16, torch.float16]:
        with case(dtype):
            values = torch.linspace(-3, 3, 32, dtype=dtype).view(2, 16)
            for kind in (torch.float8_e4m3fn, torch.int8):
                assert back(values, kind).dtype == dtype
                torch.testing.assert_close(back(values, kind), values, rtol=1 / 16, atol=0.02)


def rows(*lanes, spare, most=0):
    found = step_rows([Feed(lane, 5, (1,)) for lane in lanes], spare, max_rows=most)
    return found.count, [*found.places], found.num_held, found.in_place


def test_rows_come_as_they_are_fed_and_in_place_where_few_are_idle():
    for lanes, spare, most, expected in [
        ((0,), 1, 0, (1, [0], 1, False)),
        ((2, 0, 1), 3, 0, (4, [0, 1, 2], 4, False)),  # a row more than is fed writes to the spare one
        ((7, 3), 0, 0, (2, [0, 1], 8, False)),
        ((0,), 1, 6, (1, [0], 1, True)),
        ((2, 0, 1), 3, 6, (4, [2, 0, 1], 4, True)),
        ((0, 1, 2, 3, 4), 5, 6, (6, [0, 1, 2, 3, 4], 6, True)),  # there are no eight rows
        ((3, 0), 1, 6, (4, [3, 0], 4, True)),
        ((4, 0), 1, 6, (2, [0, 1], 5, False)),  # more idle rows than fed ones
        ((3,), 0, 6, (1, [0], 4, False)),
    ]:
        assert rows(*lanes, spare=spare, most=most) == expected, (lanes, most)


def test_each_token_of_a_feed_with_drafts_has_a_row():
    found = step_rows([Feed(0, 5, (1, 2, 3), 3), Feed(1, 9, (4, 5), 2)], spare=2)
    assert (found.count, [*found.places], found.num_held) == (8, [0, 1, 2, 3, 4], 3)
    assert found.spread([0, 0, 0, 1, 1], found.spare) == [0, 0, 0, 1, 1, 2, 2, 2]


def test_a_step_with_drafts_is_static_where_its_tokens_are_computed_as_alone():
    for feed, is_static in [
        (Feed(0, 5, (1,) * 16, 16), True),
        (Feed(0, 5, (1,) * 17, 17), False),  # its tokens are not computed one by one
        (Feed(0, 5, (1, 2, 3), 2), True),
        (Feed(0, 5, (1, 2, 3), 1), False),
        (Feed(0, 0, (1, 2), 1), False),  # a prompt
        (Feed(0, 5, (1, 2), 2, num_scored=1), False),
        (Feed(0, 5, (1,), 0, text_length=9), False),
    ]:
        assert is_drafted_step([feed, Feed(1, 4, (1,))]) == is_static, (feed, is_static)


def test_a_step_with_too_many_drafts_is_not_static():
    feeds = [Feed(lane, 5, (1,) * 16, 16) for lane in range(9)]
    assert is_drafted_step(feeds[:8])
    assert not is_drafted_step(feeds)


def test_capacity_grows_in_few_steps_with_little_to_spare():
    lengths = range(1, 20_000)
    sizes = sorted({roomy(length, 10**6) for length in lengths})
    assert len(sizes) < 25
    assert all(
        length <= roomy(length, 10**6) <= max(256, length + 256, 1.25 * length + 1) for length in lengths
    )
    assert roomy(900, 1000) == 1024  # no more than the context
