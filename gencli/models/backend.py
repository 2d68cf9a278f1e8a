"""Which way a model's lanes are run."""

from __future__ import annotations

import inspect
from typing import Any, Protocol

from torch import Tensor

from gencli.models.kv import can_crop, fits_lanes
from gencli.models.lanes import LaneLengths
from gencli.models.masks import use_lane_masks
from gencli.models.own_cache import OwnCacheLanes
from gencli.models.slots import SlotLanes
from gencli.plan import Feed

__all__ = ["Lanes", "choose_lanes"]


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
        """Copy one lane over another."""
        ...

    def release(self, lane: int) -> None:
        """Empty the lane."""
        ...


def choose_lanes(model: Any, lengths: LaneLengths) -> tuple[Lanes, tuple[str, ...]]:
    """Shared lanes where the architecture allows them, else one cache a lane; and what to say about it."""
    text = model.config.get_text_config(decoder=True)
    ropes = {rope.get("rope_type"): rope for rope in _ropes(text)}
    takes_positions = "position_ids" in inspect.signature(model.forward).parameters
    if takes_positions and fits_lanes(text) and "dynamic" not in ropes and use_lane_masks(model):
        switch = ropes.get("longrope", {}).get("original_max_position_embeddings")
        return SlotLanes(model, lengths, rope_switch=switch), ()
    notice = (
        f"{text.model_type} models run one request at a time in each step: batches are right, but not faster"
    )
    lanes = OwnCacheLanes(model, lengths, is_recurrent=not fits_lanes(text), can_rollback=can_crop(text))
    return lanes, (notice,)


def _ropes(config: Any) -> list[dict[str, Any]]:
    """Rotary parameters: of the model, or of each of its layer types."""
    ropes = getattr(config, "rope_parameters", None) or {}
    return [ropes] if "rope_type" in ropes else [rope for rope in ropes.values() if isinstance(rope, dict)]
