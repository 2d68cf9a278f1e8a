"""Which way a model's lanes are run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor

from gencli.core.step import Feed
from gencli.errors import ModelError
from gencli.models.kv.cache import can_crop, fits_lanes
from gencli.models.kv.calls import LogitsCall, num_ids
from gencli.models.kv.flat import FLAT_MODELS
from gencli.models.kv.lengths import LaneLengths
from gencli.models.kv.masks import use_lane_masks
from gencli.models.kv.per_request import OwnCacheLanes
from gencli.models.kv.shared import SlotLanes
from gencli.models.longrope import LongRopeLanes, rope_switches, use_lane_factors
from gencli.models.selfcheck import LENGTH, NUM_LANES, SelfCheck, fault_of

__all__ = ["Lanes", "choose_lanes"]


_MISLABELLED = {"gpt_neox", "gpt_neox_japanese"}  # decoders whose configuration says they are none
_STATE_IN_MODULES = {"recurrent_gemma"}
_COUNTS_PLACES = {"llama4_text"}  # its attention scales by places that it counts from the longest lane


class Lanes(Protocol):
    """What HFRunner needs of its lanes; lengths are checked and counted by the runner."""

    can_rollback: bool

    def forward(self, feeds: tuple[Feed, ...]) -> Tensor:
        """Feed the lanes; return the wanted rows [R, V] in feed order."""
        ...

    def truncate(self, lane: int, length: int) -> None:
        """Cut the lane to `length` tokens, fewer than it holds."""
        ...

    def fork(self, source: int, target: int) -> None:
        """Copy one lane to an empty one."""
        ...

    def release(self, lane: int) -> None:
        """Empty the lane."""
        ...

    def free_cache(self) -> None:
        """Give back the memory that lanes held; all of them are empty."""
        ...


_Way = Callable[[LaneLengths], Lanes]


def choose_lanes(model: Any, lengths: LaneLengths) -> tuple[Lanes, tuple[str, ...]]:
    """Shared lanes where the architecture allows them, else one cache a lane; and what to say about it.

    What is chosen was tried, on this model (see SelfCheck) or on its architecture by the tests. Raises
    ModelError for models that cannot be continued token by token.
    """
    text = model.config.get_text_config(decoder=True)
    _require_decoder(text)
    if switches := rope_switches(text):
        use_lane_factors(model)
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
        way, notices = _checked_way(model, text, switches)
    if not switches:
        return way(lengths), notices
    inner = lengths.like()
    return LongRopeLanes(way(inner), inner, switches), notices


def _checked_way(model: Any, text: Any, switches: tuple[int, ...]) -> tuple[_Way, tuple[str, ...]]:
    """The fastest way to run the lanes of the model that is right."""
    is_spread = len(set(getattr(model, "hf_device_map", {}).values())) > 1
    own = [*_own_ways(model, text, switches)]
    if is_spread:
        notice = "A model on several devices runs one request at a time in each step"
        if "disk" in model.hf_device_map.values():  # where each of the passes would read all weights
            return own[0], (notice,)
    else:
        notice = (
            f"{text.model_type} models run one request at a time in each step: "
            "batches are right, but not faster"
        )
    check = None if _is_tested(model, text) else _check(model, text)
    if not is_spread and (shared := _shared_way(model, text, switches, check)):
        return shared, ()
    check = check or _check(model, text)
    for way in own:
        if not (fault := _fault(check, model, way)):
            return way, (notice,)
    raise ModelError(f"{text.model_type} models cannot be run: {fault}")


def _is_tested(model: Any, text: Any) -> bool:
    """Whether it is one of the library's own models that the tests run on shared lanes.

    Trying it again would cost each start some ten passes of one token.
    """
    return text.model_type in FLAT_MODELS and type(model).__module__.startswith("transformers.models.")


def _shared_way(model: Any, text: Any, switches: tuple[int, ...], check: SelfCheck | None) -> _Way | None:
    """All lanes in one cache, if the model can be switched to that and is right so; else it is as it was.

    Without a check it is known to be right.
    """
    is_apart = text.model_type in _COUNTS_PLACES
    if is_apart or not fits_lanes(text) or not LogitsCall(model).takes_positions:
        return None
    attention = model.config._attn_implementation
    way: _Way = partial(SlotLanes, model, rope_switches=switches)
    if use_lane_masks(model):
        if check is None or not _fault(check, model, way):
            return way
        model.set_attn_implementation(attention)
    return None


def _own_ways(model: Any, text: Any, switches: tuple[int, ...]) -> Iterator[_Way]:
    """A cache for each lane, with what the library's cache promises of itself and then with less."""
    is_recurrent = not fits_lanes(text)
    # Where a model does not take the library's cache its state is elsewhere.
    can_rollback = can_crop(text) and LogitsCall(model).takes_cache
    abilities = [(is_recurrent, can_rollback), (is_recurrent, False), (True, False)]
    for recurrent, rollback in dict.fromkeys(abilities):
        yield partial(
            _own_lanes, model=model, is_recurrent=recurrent, can_rollback=rollback, rope_switches=switches
        )


def _own_lanes(lengths: LaneLengths, **options: Any) -> Lanes:
    return OwnCacheLanes(**options)


def _check(model: Any, text: Any) -> SelfCheck:
    try:
        return SelfCheck(model)
    except Exception as error:  # the library's models raise whatever the line at fault raises
        raise ModelError(f"{text.model_type} models cannot be run: {fault_of(error)}") from error


def _fault(check: SelfCheck, model: Any, way: _Way) -> str:
    lengths = LaneLengths(max_lanes=NUM_LANES, context=LENGTH, num_ids=num_ids(model))
    return check.fault(way(lengths), lengths)


def _require_decoder(config: Any) -> None:
    """Refuse what reads both ways, or keeps its state where lanes would share it."""
    kind = config.model_type
    if getattr(config, "is_decoder", True) is False and kind not in _MISLABELLED:
        raise ModelError(f"{kind} is not a decoder: it does not continue text token by token")
    if kind in _STATE_IN_MODULES:
        raise ModelError(f"{kind} keeps its state inside its layers, so requests cannot share it")
