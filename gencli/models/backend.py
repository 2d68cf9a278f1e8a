"""Choose what runs a model: gencli's own decoder, or transformers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from gencli.errors import ModelError
from gencli.models.decoder.families import read_spec
from gencli.models.decoder.spec import DecoderSpec, Unsupported
from gencli.models.files.quantization import Quantize, stored_bits

__all__ = ["ALONE", "EXPERTS_ON_HOST", "SPREAD", "Backend", "choose_backend", "why_no_graphs"]

Backend = Literal["auto", "native", "transformers"]

# Reasons why steps are not recorded on a CUDA GPU.
ALONE = "the model runs one request at a time in each step"
EXPERTS_ON_HOST = "the host looks up which experts a token uses"
SPREAD = "the model is spread over several devices"


def choose_backend(
    backend: Backend,
    config: Mapping[str, Any],
    *,
    trust_remote_code: bool = False,
    is_spread: bool = False,
    quantize: Quantize = "none",
    kernel: str = "auto",
    invariant: str = "auto",
    kv_dtype: str = "auto",
) -> tuple[DecoderSpec | None, str]:
    """Return the decoder for a model's configuration, or None for transformers, and the reason for that.

    `auto` takes the decoder for every model that it knows in full. Raises ModelError if the decoder cannot
    run the model, but is asked for by `native`, by weights that gencli has quantized, or by an option that
    only the decoder has; and for quantized weights that are to be quantized again.
    """
    bits = stored_bits(config)
    if bits is not None and quantize != "none":
        raise ModelError(
            f"`quantize` is {quantize}, but the model's weights are quantized to {bits} bits already.",
            hint="Leave `quantize` out, or take the model as it was before.",
        )
    spec, reason = _choose(backend, config, trust_remote_code=trust_remote_code, is_spread=is_spread)
    if spec is None:
        why = "`backend` is transformers" if backend == "transformers" else reason
        if bits is not None:
            raise ModelError(
                f"The model has weights of {bits} bits, which takes gencli's own decoder, but {why}."
            )
        for key, value, shared in (
            ("quantize", quantize, ("none",)),
            ("kernel", kernel, ("auto",)),
            ("invariant", invariant, ("auto", "off")),
            ("kv_dtype", kv_dtype, ("auto",)),
        ):
            if value not in shared:
                raise ModelError(
                    f"`{key}` is {value}, which takes gencli's own decoder, but {why}.",
                    hint=f"Leave `{key}` out.",
                )
    return spec, reason


def why_no_graphs(
    spec: DecoderSpec | None, *, has_shared_lanes: bool = True, reads_experts: bool = False
) -> str:
    """Return why decode steps are not recorded on a CUDA GPU, as far as a model's configuration says, or "".

    `spec` is that of gencli's own decoder, None for transformers. `reads_experts` says whether the host looks
    up the experts of the decoder: where its GPU lacks the kernels.
    """
    if spec is None:
        return "" if has_shared_lanes else ALONE
    return EXPERTS_ON_HOST if reads_experts else ""


def _choose(
    backend: Backend, config: Mapping[str, Any], *, trust_remote_code: bool, is_spread: bool
) -> tuple[DecoderSpec | None, str]:
    if backend == "transformers":
        return None, "as asked"
    reason = ""
    if trust_remote_code:
        reason = "code of the model may run, which only transformers does"
    elif is_spread:
        reason = SPREAD
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
