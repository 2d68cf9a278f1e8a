"""Read the rotary parameters of config.json, in today's form and the older one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gencli.models.decoder.spec import RopeSpec, Unsupported

__all__ = ["read_rope", "rope_values"]

_ROPES = {
    "default": (),
    "linear": ("factor",),
    "factors": ("factors",),  # of GGUF files: one for each frequency
    "llama3": ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"),
    "yarn": ("original_max_position_embeddings",),
    "longrope": ("long_factor", "short_factor", "original_max_position_embeddings"),
}
_ROPE_KEYS = frozenset(
    """
    rope_type type rope_theta factor low_freq_factor high_freq_factor original_max_position_embeddings
    factors long_factor short_factor attention_factor beta_fast beta_slow mscale mscale_all_dim truncate
    partial_rotary_factor
    """.split()
)


def rope_values(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the rotary parameters of a configuration: today's rope_parameters, or the older rope_scaling."""
    values = config.get("rope_scaling") or config.get("rope_parameters") or {}
    if not isinstance(values, Mapping):
        raise Unsupported("its rotary parameters are no object")
    return values


def read_rope(
    config: Mapping[str, Any], values: Mapping[str, Any], head_dim: int, theta: float | None = None
) -> RopeSpec:
    """Return the rotary embedding of parameters as rope_values gives them; `theta` overrides theirs.

    Raises Unsupported for a kind or a key that is not known, and for a missing one.
    """
    kind = str(values.get("rope_type") or values.get("type") or "default")
    if kind == "su":  # the first name of long rope
        kind = "longrope"
    if kind not in _ROPES or (strange := sorted(values.keys() - _ROPE_KEYS)):
        what = kind if kind not in _ROPES else strange[0]
        raise Unsupported(f"the rotary embedding has {what!r}, which the decoder does not know")
    context = int(config["max_position_embeddings"])
    known = dict(values)
    if kind in ("llama3", "yarn", "longrope"):
        outer = config.get("original_max_position_embeddings")
        known["original_max_position_embeddings"] = int(
            outer or values.get("original_max_position_embeddings") or context
        )
    if missing := [key for key in _ROPES[kind] if known.get(key) is None]:
        raise Unsupported(f"the rotary embedding {kind} lacks {missing[0]}")
    share = values.get("partial_rotary_factor") or config.get("partial_rotary_factor") or 1.0
    base = theta or values.get("rope_theta") or config.get("rope_theta") or 10000.0
    return RopeSpec(kind, float(base), int(head_dim * share), context, known)
