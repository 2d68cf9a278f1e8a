"""The KV cache: what is written to a lane is read back, copied, wiped, and kept while buffers grow."""

import pytest
import torch
import transformers as hf
from torch import Tensor

from gencli.core.request import Feed, StepPlan, room_for
from gencli.models.kv import lane_buffers as module
from gencli.models.kv.lane_batches import make_padded_batch
from gencli.models.kv.lane_lengths import LaneLengths
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
    assert all((buffer._data[0, :, 1:] == 0).all() for buffer in buffers)


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
