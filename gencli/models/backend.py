"""Choose what runs a model: gencli's own decoder, or transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gencli.errors import ModelError
from gencli.models.decoder.families import read_spec
from gencli.models.decoder.spec import DecoderSpec, Unsupported
from gencli.models.files.quantization import Quantize, stored_bits

__all__ = ["Backend", "choose_backend"]

Backend = Literal["auto", "native", "transformers"]


def choose_backend(
    backend: Backend,
    config: Mapping[str, Any],
    *,
    trust_remote_code: bool = False,
    is_spread: bool = False,
    quantize: Quantize = "none",
) -> tuple[DecoderSpec | None, str]:
    """Return the decoder for a model's configuration, or None for transformers, and the reason for that.

    `auto` takes the decoder for every model that it knows in full. Raises ModelError if the decoder cannot
    run the model, but is asked for by `native`, by `quantize` or by weights that gencli has quantized; and
    for quantized weights that are to be quantized again.
    """
    bits = stored_bits(config)
    if bits is not None and quantize != "none":
        raise ModelError(
            f"`quantize` is {quantize}, but the model's weights are quantized to {bits} bits already.",
            hint="Leave `quantize` out, or take the model as it was before.",
        )
    spec, reason = _choose(backend, config, trust_remote_code=trust_remote_code, is_spread=is_spread)
    if spec is None and (bits is not None or quantize != "none"):
        what = f"`quantize` is {quantize}" if bits is None else f"The model has weights of {bits} bits"
        why = "`backend` is transformers" if backend == "transformers" else reason
        raise ModelError(f"{what}, which takes gencli's own decoder, but {why}.")
    return spec, reason


def _choose(
    backend: Backend, config: Mapping[str, Any], *, trust_remote_code: bool, is_spread: bool
) -> tuple[DecoderSpec | None, str]:
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
