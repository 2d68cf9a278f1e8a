"""Which way a model's lanes are run."""

from __future__ import annotations

from typing import Any, Protocol

from torch import Tensor

from gencli.errors import ModelError
from gencli.models.calls import LogitsCall
from gencli.models.kv import can_crop, fits_lanes
from gencli.models.lanes import LaneLengths
from gencli.models.masks import use_lane_masks
from gencli.models.own_cache import OwnCacheLanes
from gencli.models.slots import SlotLanes
from gencli.plan import Feed

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

    def shorten(self, lane: int, length: int) -> None:
        """Cut the lane to `length` tokens, fewer than it holds."""
        ...

    def fork(self, source: int, target: int) -> None:
        """Copy one lane to an empty one."""
        ...

    def release(self, lane: int) -> None:
        """Empty the lane."""
        ...

    def trim(self) -> None:
        """Give back the memory that lanes held; all of them are empty."""
        ...


def choose_lanes(model: Any, lengths: LaneLengths) -> tuple[Lanes, tuple[str, ...]]:
    """Shared lanes where the architecture allows them, else one cache a lane; and what to say about it.

    Raises ModelError for models that cannot be continued token by token.
    """
    text = model.config.get_text_config(decoder=True)
    _require_decoder(text)
    ropes = {rope.get("rope_type"): rope for rope in _ropes(text)}
    is_plain = fits_lanes(text)
    if len(set(getattr(model, "hf_device_map", {}).values())) > 1:
        notice = "A model on several devices runs one request at a time in each step"
        return OwnCacheLanes(model, is_recurrent=not is_plain, can_rollback=can_crop(text)), (notice,)
    # Dynamic rotary frequencies, too, depend on the longest lane of a pass; such lanes run alone.
    is_apart = "dynamic" not in ropes and text.model_type not in _COUNTS_PLACES
    if is_plain and is_apart and LogitsCall(model).takes_positions and use_lane_masks(model):
        switch = ropes.get("longrope", {}).get("original_max_position_embeddings")
        return SlotLanes(model, lengths, rope_switch=switch), ()
    notice = (
        f"{text.model_type} models run one request at a time in each step: batches are right, but not faster"
    )
    return OwnCacheLanes(model, is_recurrent=not is_plain, can_rollback=can_crop(text)), (notice,)


def _require_decoder(config: Any) -> None:
    """Refuse what reads both ways, or keeps its state where lanes would share it."""
    kind = config.model_type
    if getattr(config, "is_decoder", True) is False and kind not in _MISLABELLED:
        raise ModelError(f"{kind} is not a decoder: it does not continue text token by token")
    if kind in _STATE_IN_MODULES:
        raise ModelError(f"{kind} keeps its state inside its layers, so requests cannot share it")


def _ropes(config: Any) -> list[dict[str, Any]]:
    """Rotary parameters: of the model, or of each of its layer types."""
    ropes = getattr(config, "rope_parameters", None) or {}
    return [ropes] if "rope_type" in ropes else [rope for rope in ropes.values() if isinstance(rope, dict)]
