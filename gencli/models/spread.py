"""Spread one model over several devices: layers over devices, or each layer over processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from gencli.errors import ModelError, UsageError

__all__ = ["ONE_DEVICE", "Spread", "check_plan", "rank"]

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
        """Whether the model is spread over several devices."""
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
