"""ModelRunner of Hugging Face causal language models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gencli.models.backend import SPREAD
from gencli.models.base import ModelSpec
from gencli.models.cuda_graphs import CudaGraphs, elsewhere, make_graphs, refuse_graphs
from gencli.models.device import pick_device
from gencli.models.files.card import CONTEXT_KEYS
from gencli.models.files.checkpoint import Checkpoint
from gencli.models.kv.calls import logits_width, num_ids
from gencli.models.kv.lengths import LaneLengths
from gencli.models.lane_runner import LaneRunner
from gencli.models.longrope import rope_switches
from gencli.models.spread import ONE_DEVICE, Spread
from gencli.models.watch import OnBytes
from processors.graphs import Graphs

__all__ = ["UNLIMITED", "HFRunner", "context_of"]

# Context of a model whose configuration names none, such as a recurrent model.
UNLIMITED = 2**31 - 1


class HFRunner(LaneRunner):
    """A loaded model with its KV lanes. Build one with `load`, or from a model already in memory.

    `graphs` run its decode steps, if the model allows it; by default these are launched one by one.
    """

    def __init__(
        self,
        model: Any,
        *,
        name: str = "model",
        max_lanes: int = 8,
        dtype_reason: str = "",
        backend: str = "transformers",
        notices: tuple[str, ...] = (),
        graphs: Graphs | None = None,
    ) -> None:
        from gencli.models.kv.choose import choose_lanes

        model.eval()
        self._model = model
        context = context_of(model.config)
        lengths = LaneLengths(max_lanes=max_lanes, context=context, num_ids=num_ids(model))
        if graphs is None:
            graphs = make_graphs("off", "", model.device)
        lanes, lane_notices, why_not = choose_lanes(model, lengths, graphs)
        if why_not:
            graphs = None
        switches = rope_switches(model.config.get_text_config(decoder=True))
        spec = ModelSpec(
            name=name,
            vocab_size=logits_width(model),
            context=context,
            device=model.device,
            dtype=model.dtype,
            eos_ids=_eos_ids(model),
            can_rollback=lanes.can_rollback,
            dtype_reason=dtype_reason,
            backend=backend,
            notices=notices + lane_notices,
            graphs=graphs,
            no_graphs=elsewhere(model.device) or why_not or "`cuda_graphs` is off",
            can_run_ahead=graphs is not None and not switches,
            rope_switches=switches,
        )
        super().__init__(spec, lanes, lengths)

    @classmethod
    def load(
        cls,
        model: str | Path | Checkpoint,
        *,
        dtype: str = "auto",
        device: str = "auto",
        max_lanes: int = 8,
        trust_remote_code: bool = False,
        spread: Spread = ONE_DEVICE,
        backend: str = "transformers",
        cuda_graphs: CudaGraphs = "auto",
        on_bytes: OnBytes | None = None,
    ) -> HFRunner:
        """Load a checkpoint, a model folder, or a hub name in the local cache, without downloading.

        `dtype` is auto, float32, bfloat16 or float16; `device` is auto, cpu, cuda, cuda:N or mps. Raises
        UsageError for other values, ModelError if the model cannot run, or for `cuda_graphs` = on where they
        cannot be had. `on_bytes` is called with the loaded and the total bytes of weights.
        """
        from gencli.models.load import load_model

        spread.check(device)
        graphs = make_graphs(cuda_graphs, SPREAD if spread.is_on else "", pick_device(device))
        loaded = load_model(
            model if isinstance(model, Checkpoint) else str(model),
            dtype=dtype,
            device=device,
            trust_remote_code=trust_remote_code,
            spread=spread,
            on_bytes=on_bytes,
        )
        runner = cls(
            loaded.model,
            name=str(model.folder if isinstance(model, Checkpoint) else model),
            max_lanes=max_lanes,
            dtype_reason=loaded.dtype_reason,
            backend=backend,
            notices=loaded.notices,
            graphs=graphs,
        )
        if runner.spec.graphs is None:
            refuse_graphs(cuda_graphs, runner.spec.no_graphs)
        return runner

    def first_layers(self, count: int | None = None, *, max_lanes: int) -> HFRunner:
        """Return a runner of the first `count` layers, sharing the weights, with its own lanes."""
        from gencli.models.first_layers import first_layers

        graphs = None if self._spec.graphs is None else self._spec.graphs.like()
        model = first_layers(self._model, count)
        return HFRunner(model, name=self._spec.name, max_lanes=max_lanes, graphs=graphs)


def context_of(config: Any) -> int:
    """Return the maximum context in tokens of a model configuration."""
    text = config.get_text_config(decoder=True)
    values = (getattr(text, name, None) for name in CONTEXT_KEYS)
    return next((value for value in values if isinstance(value, int) and value > 0), UNLIMITED)


def _eos_ids(model: Any) -> tuple[int, ...]:
    """Return the end-of-text ids of generation_config, which may be None, a number or a list."""
    ids = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    if ids is None:
        return ()
    return (ids,) if isinstance(ids, int) else tuple(ids)
