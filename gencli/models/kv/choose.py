"""Choose how the KV lanes of a model are run: in one shared cache, or in one cache per lane."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch

from gencli.errors import ModelError
from gencli.models.backend import ALONE
from gencli.models.kv.cache import can_crop, fits_lanes
from gencli.models.kv.calls import LogitsCall, num_ids
from gencli.models.kv.flat import FLAT_MODELS
from gencli.models.kv.lengths import LaneLengths
from gencli.models.kv.masks import use_lane_masks
from gencli.models.kv.per_request import OwnCacheLanes
from gencli.models.kv.shared import SlotLanes
from gencli.models.kv.static_calls import why_not_static
from gencli.models.lane_runner import Lanes
from gencli.models.longrope import LongRopeLanes, rope_switches, use_lane_factors
from gencli.models.selfcheck import LENGTH, NUM_LANES, SelfCheck, fault_of
from processors.graphs import Graphs

__all__ = ["Chosen", "choose_lanes"]


_MISLABELLED = {"gpt_neox", "gpt_neox_japanese"}  # decoders with is_decoder=False in their configuration
_STATE_IN_MODULES = {"recurrent_gemma"}  # the state is in the layers, not in a cache
_COUNTS_POSITIONS = {"llama4_text"}  # attention scales by positions counted from the longest lane


_Way = Callable[[LaneLengths], Lanes]


class Chosen(NamedTuple):
    """KV lanes, notices for the user, and why their decode steps do not run by graphs ("" if they do)."""

    lanes: Lanes
    notices: tuple[str, ...]
    no_graphs: str


def choose_lanes(model: Any, lengths: LaneLengths, graphs: Graphs | None = None) -> Chosen:
    """Return the fastest correct lanes for the model.

    These are shared lanes where the architecture allows them, else one cache per lane. The choice is
    verified on this model (see SelfCheck), or on its architecture by the tests. `graphs` run the decode steps
    of shared lanes where that is possible. Raises ModelError for models that cannot continue text token by
    token.
    """
    text = model.config.get_text_config(decoder=True)
    _require_decoder(text)
    if switches := rope_switches(text):
        use_lane_factors(model)
    with torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
        way, notices, no_graphs = _checked_way(model, text, switches, graphs)
    if not switches:
        return Chosen(way(lengths), notices, no_graphs)
    inner = lengths.like()
    return Chosen(LongRopeLanes(way(inner), inner, switches), notices, no_graphs)


def _checked_way(
    model: Any, text: Any, switches: tuple[int, ...], graphs: Graphs | None
) -> tuple[_Way, tuple[str, ...], str]:
    """Return a factory for the fastest correct lanes, and the other parts of Chosen.

    Raises ModelError if no lanes are correct.
    """
    is_spread = len(set(getattr(model, "hf_device_map", {}).values())) > 1
    own = [*_own_ways(model, text, switches)]
    if is_spread:
        notice = "A model on several devices runs one request at a time in each step"
        if "disk" in model.hf_device_map.values():  # every pass of the check would read all weights
            return own[0], (notice,), ALONE
    else:
        notice = (
            f"{text.model_type} models run one request at a time in each step: "
            "batches are right, but not faster"
        )
    check = None if _is_tested(model, text) else _check(model, text)
    if not is_spread and (shared := _shared_way(model, text, switches, check)):
        way, no_graphs = _with_graphs(shared, model, graphs, check)
        return way, (), no_graphs
    check = check or _check(model, text)
    for way in own:
        if not (fault := _fault(check, model, way)):
            return way, (notice,), ALONE
    raise ModelError(f"{text.model_type} models cannot be run: {fault}")


def _is_tested(model: Any, text: Any) -> bool:
    """Return whether it is a transformers model that the tests run on shared lanes.

    Checking it again would cost about ten passes of one token at each start.
    """
    return text.model_type in FLAT_MODELS and type(model).__module__.startswith("transformers.models.")


def _shared_way(model: Any, text: Any, switches: tuple[int, ...], check: SelfCheck | None) -> _Way | None:
    """Return a factory for lanes in one shared cache; None if the model does not support it.

    With `check` None the model is known to be correct. On a fault the model's attention is restored.
    """
    if text.model_type in _COUNTS_POSITIONS or not fits_lanes(text) or not LogitsCall(model).takes_positions:
        return None
    attention = model.config._attn_implementation
    way: _Way = partial(SlotLanes, model, rope_switches=switches)
    if use_lane_masks(model):
        if check is None or not _fault(check, model, way):
            return way
        model.set_attn_implementation(attention)
    return None


def _with_graphs(
    shared: Callable[..., Lanes], model: Any, graphs: Graphs | None, check: SelfCheck | None
) -> tuple[_Way, str]:
    """Return the factory of shared lanes whose decode steps run by graphs, or as it is, and why."""
    reason = why_not_static(model)
    if graphs is None or reason:
        return shared, reason
    tried = partial(shared, graphs=Graphs(None))
    if check is not None and (fault := _fault(check, model, tried, decodes=True)):
        return shared, f"its steps of fixed shapes fail a check: {fault}"
    return partial(shared, graphs=graphs), ""


def _own_ways(model: Any, text: Any, switches: tuple[int, ...]) -> Iterator[_Way]:
    """Yield factories for one cache per lane: first with all the cache claims to support, then with less."""
    is_recurrent = not fits_lanes(text)
    # A model that takes no transformers cache keeps its state elsewhere.
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
    except Exception as error:  # models raise exceptions of any type
        raise ModelError(f"{text.model_type} models cannot be run: {fault_of(error)}") from error


def _fault(check: SelfCheck, model: Any, way: _Way, *, decodes: bool = False) -> str:
    lengths = LaneLengths(max_lanes=NUM_LANES, context=LENGTH, num_ids=num_ids(model))
    return check.fault(way(lengths), lengths, decodes=decodes)


def _require_decoder(config: Any) -> None:
    """Raise ModelError for bidirectional models, and for layers with state that lanes would share."""
    kind = config.model_type
    if getattr(config, "is_decoder", True) is False and kind not in _MISLABELLED:
        raise ModelError(f"{kind} is not a decoder: it does not continue text token by token")
    if kind in _STATE_IN_MODULES:
        raise ModelError(f"{kind} keeps its state inside its layers, so requests cannot share it")
