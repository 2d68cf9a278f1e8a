"""Choose what runs a model: gencli's own decoder, or transformers; and spread it over several devices,
layers over devices or each layer over processes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Literal

from gencli.errors import ModelError, UsageError
from gencli.models.decoder.families import DecoderSpec, Unsupported, read_spec
from gencli.models.files.model_files import Quantize, stored_bits

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
    spec, reason = None, "as asked"
    if trust_remote_code and backend != "transformers":
        reason = "code of the model may run, which only transformers does"
    elif is_spread and backend != "transformers":
        reason = SPREAD
    elif backend != "transformers":
        try:
            spec = read_spec(config)
            reason = reason if backend == "native" else "the decoder knows the family"
        except Unsupported as error:
            reason = str(error)
    if spec is None and backend == "native":
        raise ModelError(
            f"gencli's own decoder cannot run this model: {reason}.",
            hint="Leave `backend` out, or give `backend` = transformers.",
        )
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


_INSTALL = "Install it with: pip install 'gencli[multi-gpu]'"


def rank() -> int:
    """Return the rank of this process under torchrun; 0 without torchrun."""
    return int(os.environ.get("RANK", "0"))


@dataclass(frozen=True, slots=True)
class Spread:
    """How a model is spread: `device_map` distributes layers, `tp` processes split each layer."""

    device_map: str | None = None
    tp: int | None = None

    @property
    def is_on(self) -> bool:
        return self.device_map is not None or self.tp is not None

    def check(self, device: str) -> None:
        """Raise UsageError for conflicting options, a missing package, or a wrong number of processes."""
        name = "`tp`" if self.tp is not None else "`device_map`"
        if self.tp is not None and self.device_map is not None:
            raise UsageError("`tp` and `device_map` both spread the model.", hint="Leave one of them out.")
        if self.is_on and device != "auto":
            raise UsageError(
                f"`device` = {device} names one device, and {name} takes several.",
                hint="Leave one of them out.",
            )
        if self.device_map is not None and find_spec("accelerate") is None:
            raise UsageError("`device_map` needs accelerate, which is not installed.", hint=_INSTALL)
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if self.tp is not None and count != self.tp:
            raise UsageError(
                f"`tp` = {self.tp} needs {self.tp} processes; there {'is' if count == 1 else 'are'} {count}.",
                hint=f"Start them with: torchrun --nproc-per-node {self.tp} -m gencli ...",
            )

    def load_options(self) -> dict[str, Any]:
        """Return the keyword arguments for from_pretrained."""
        if self.tp is not None:
            from transformers.distributed import DistributedConfig

            return {"distributed_config": DistributedConfig(tp_size=self.tp)}
        return {} if self.device_map is None else {"device_map": self.device_map}


ONE_DEVICE = Spread()


def check_plan(config: Any, tp: int) -> None:
    """Raise ModelError for an architecture that transformers cannot split over `tp` processes."""
    text = config.get_text_config(decoder=True)
    if not getattr(text, "base_model_tp_plan", None):
        raise ModelError(
            f"`tp`: the library has no plan for splitting {text.model_type} models.",
            hint="`device_map` = auto puts its layers on several devices.",
        )
    for name in ("num_attention_heads", "num_key_value_heads"):
        heads = getattr(text, name, None)
        if isinstance(heads, int) and heads % tp:
            raise ModelError(
                f"`tp` = {tp}: the model has {heads} heads ({name}), which {tp} processes cannot share "
                "evenly.",
                hint=f"Take a number that divides {heads}, or `device_map` = auto.",
            )
