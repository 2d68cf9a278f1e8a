"""Choose what runs a model: gencli's own decoder, or transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gencli.errors import ModelError
from gencli.models.decoder.families import read_spec
from gencli.models.decoder.spec import DecoderSpec, Unsupported

__all__ = ["Backend", "choose_backend"]

Backend = Literal["auto", "native", "transformers"]


def choose_backend(
    backend: Backend, config: Mapping[str, Any], *, trust_remote_code: bool = False, is_spread: bool = False
) -> tuple[DecoderSpec | None, str]:
    """Return the decoder for a model's configuration, or None for transformers, and the reason for that.

    `auto` takes the decoder for every model that it knows in full. Raises ModelError if `native` is asked
    for and cannot run the model.
    """
    if backend == "transformers":
        return None, "as asked"
    reason = ""
    if trust_remote_code:
        reason = "code of the model may run, which only transformers does"
    elif is_spread:
        reason = "the model is spread over several devices"
    else:
        try:
            return read_spec(config), "as asked" if backend == "native" else "the decoder knows the family"
        except Unsupported as error:
            reason = str(error)
    if backend == "native":
        raise ModelError(
            f"gencli's own decoder cannot run this model: {reason}.",
            hint="Leave `backend` out, or give `backend` = transformers.",
        )
    return None, reason
