"""Load a checkpoint with transformers, without its log lines, and only if all weights are there."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from gencli.errors import ModelError
from gencli.models.device import pick_device, pick_dtype
from gencli.models.files.checkpoint import Checkpoint, open_checkpoint
from gencli.models.free_memory import refusing_full
from gencli.models.onednn import pack
from gencli.models.spread import ONE_DEVICE, Spread, check_plan
from gencli.models.watch import OnBytes, watched
from gencli.models.wide_head import widen_head

__all__ = ["Loaded", "load_model"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model on its device, the reason for its dtype, and notices for the user."""

    model: Any
    dtype_reason: str
    notices: tuple[str, ...] = ()


def load_model(
    model: str | Checkpoint,
    *,
    dtype: str,
    device: str,
    trust_remote_code: bool,
    spread: Spread = ONE_DEVICE,
    on_bytes: OnBytes | None = None,
) -> Loaded:
    """Load a causal language model by name or path, or of a checkpoint that was read.

    Every failure is a UsageError or a ModelError. `on_bytes` is called with the loaded and the total bytes.
    """
    spread.check(device)
    chosen = pick_device(device)
    pick_dtype(dtype, device=chosen, stored="F32")  # refuses an unknown name before the files are read
    _silence()
    checkpoint = (
        model
        if isinstance(model, Checkpoint)
        else open_checkpoint(model, trust_remote_code=trust_remote_code)
    )
    number, reason = pick_dtype(dtype, device=chosen, stored=checkpoint.stored)
    options: dict[str, Any] = {} if checkpoint.is_quantized else {"dtype": number}
    if spread.is_on:
        options |= _spread_options(checkpoint, spread, trust_remote_code=trust_remote_code)
    with watched(checkpoint.table, on_bytes) if on_bytes else nullcontext():
        loaded, report = _load(checkpoint, options, trust_remote_code=trust_remote_code)
    _require_complete(checkpoint, report)
    return Loaded(
        loaded if spread.is_on else widen_head(pack(_move(loaded, chosen))), reason, _unused_notice(report)
    )


def _spread_options(checkpoint: Checkpoint, spread: Spread, *, trust_remote_code: bool) -> dict[str, Any]:
    """Return the from_pretrained options that spread the model. Raises ModelError if it cannot be spread."""
    if spread.tp is not None:
        from transformers import AutoConfig

        folder = checkpoint.folder
        check_plan(
            AutoConfig.from_pretrained(folder, trust_remote_code=trust_remote_code, local_files_only=True),
            spread.tp,
        )
    return spread.load_options()


def _silence() -> None:
    """Turn off the log lines and progress bars of transformers."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()


def _load(
    checkpoint: Checkpoint, options: dict[str, Any], *, trust_remote_code: bool
) -> tuple[Any, dict[str, Any]]:
    from transformers import AutoModelForCausalLM

    try:
        model, report = AutoModelForCausalLM.from_pretrained(
            checkpoint.folder,
            local_files_only=True,
            use_safetensors=True,
            trust_remote_code=trust_remote_code,
            output_loading_info=True,
            **options,
        )
    except Exception as error:  # transformers raises exceptions of any type here
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        if "ignore_mismatched_sizes" in str(error):  # the details are in a report that is not shown
            reason = "its weights have other shapes than its config.json asks for"
        raise ModelError(f"{checkpoint.folder} cannot be loaded: {reason}") from error
    return model, report


def _require_complete(checkpoint: Checkpoint, report: dict[str, Any]) -> None:
    """Raise ModelError if the checkpoint lacks weights, which transformers would initialise at random."""
    if absent := sorted(report["missing_keys"]):
        raise ModelError(
            f"{checkpoint.folder} lacks {len(absent)} of the model's weights, such as {absent[0]}",
            hint="is this the checkpoint of a base model, an adapter, or an interrupted download?",
        )


def _move(model: Any, device: torch.device) -> Any:
    with refusing_full(device):
        return model.to(device)


def _unused_notice(report: dict[str, Any]) -> tuple[str, ...]:
    unused = sorted(report["unexpected_keys"])
    return (f"{len(unused)} tensors of the checkpoint are not used, such as {unused[0]}",) if unused else ()
