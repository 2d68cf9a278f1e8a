"""Hugging Face causal language models: their runner, loading with transformers without its log lines and
only if all weights are there, float32 logits of a head in 16 bits, and models of the first layers.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from gencli.core.request import StepPlan
from gencli.errors import ModelError
from gencli.models.backend import ONE_DEVICE, SPREAD, Spread, check_plan
from gencli.models.decoder.products.dense_products import adds_wide, pack, wide_linear
from gencli.models.device import (
    CudaGraphs,
    elsewhere,
    make_graphs,
    pick_device,
    pick_dtype,
    refuse_graphs,
    refusing_full,
)
from gencli.models.files.checkpoint import Checkpoint, open_checkpoint, unused_notices
from gencli.models.files.model_card import CONTEXT_KEYS
from gencli.models.files.model_files import OnBytes, watched
from gencli.models.kv.lane_buffers import LaneLengths, LaneRunner, fed_to, wanted_of
from gencli.models.kv.model_calls import HiddenStates, logits_width, num_ids
from gencli.models.model_runner import Inner, ModelSpec
from gencli.models.rope import rope_switches
from processors.graphs import Graphs, upload

if TYPE_CHECKING:
    from gencli.models.kv.shared_cache import SlotLanes

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
        from gencli.models.kv.shared_cache import SlotLanes, choose_lanes

        model.eval()
        self._model = model
        context = context_of(model.config)
        lengths = LaneLengths(max_lanes=max_lanes, context=context, num_ids=num_ids(model))
        if graphs is None:
            graphs = make_graphs("off", "", model.device)
        lanes, lane_notices, why_not = choose_lanes(model, lengths, graphs)
        if why_not:
            graphs = None
        self._states = HiddenStates(model)
        shows_states = bool(self._states.layers) and isinstance(lanes, SlotLanes)
        ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
        switches = rope_switches(model.config.get_text_config(decoder=True))
        spec = ModelSpec(
            name=name,
            vocab_size=logits_width(model),
            context=context,
            device=model.device,
            dtype=model.dtype,
            eos_ids=(ends,) if isinstance(ends, int) else tuple(ends or ()),
            can_rollback=lanes.can_rollback,
            dtype_reason=dtype_reason,
            backend=backend,
            notices=notices + lane_notices,
            graphs=graphs,
            no_graphs=elsewhere(model.device) or why_not or "`cuda_graphs` is off",
            can_run_ahead=graphs is not None and not switches,
            rope_switches=switches,
            num_layers=len(self._states.layers) if shows_states else 0,
            is_tied=bool(getattr(model.config.get_text_config(decoder=True), "tie_word_embeddings", False)),
            hidden=model.get_input_embeddings().weight.shape[1] if shows_states else 0,
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
        spread.check(device)
        graphs = make_graphs(cuda_graphs, SPREAD if spread.is_on else "", pick_device(device))
        loaded, reason, notices = load_model(
            model if isinstance(model, Checkpoint) else str(model),
            dtype=dtype,
            device=device,
            trust_remote_code=trust_remote_code,
            spread=spread,
            on_bytes=on_bytes,
        )
        runner = cls(
            loaded,
            name=str(model.folder if isinstance(model, Checkpoint) else model),
            max_lanes=max_lanes,
            dtype_reason=reason,
            backend=backend,
            notices=notices,
            graphs=graphs,
        )
        if runner.spec.graphs is None:
            refuse_graphs(cuda_graphs, runner.spec.no_graphs)
        return runner

    def forward_layers(
        self,
        plan: StepPlan,
        layers: Iterable[int] = (),
        lanes: Collection[int] = (),
        taps: Collection[int] = (),
    ) -> tuple[Tensor, Inner]:
        """As `forward`; return also logits of layers and states (see LayeredRunner)."""
        feeds, layers, held = plan.feeds, [*layers], cast("SlotLanes", self._lanes)
        self._lengths.check(plan)
        with torch.inference_mode():
            logits, states = held.forward_states(feeds, self._states, {*layers, *taps})
            wanted, tapped = (
                upload(places, logits.device) for places in (wanted_of(feeds), fed_to(lanes, feeds))
            )
            early = {layer: states[layer][wanted] for layer in layers}
            inner = Inner(
                lambda layer: self.project(early[layer]), {tap: states[tap][tapped] for tap in taps}
            )
        self._lengths.advance(plan)
        return logits, inner

    @torch.inference_mode()
    def embed(self, ids: Tensor) -> Tensor:
        """Return the embeddings [N, H] of `ids` [N], as the first layer reads them."""
        embedded: Tensor = self._model.get_input_embeddings()(ids)
        return embedded

    @torch.inference_mode()
    def project(self, states: Tensor) -> Tensor:
        """Return the logits [N, V] of states [N, H] behind the final norm.

        Raises ModelError for a model that scales its logits after the projection, in a way of its own.
        """
        text = self._model.config.get_text_config(decoder=True)
        for key in ("final_logit_softcapping", "logits_scaling", "logit_scale"):
            if getattr(text, key, None) not in (None, 1.0):
                raise ModelError(f"{self._spec.name}: {text.model_type} scales its logits by `{key}`.")
        logits: Tensor = self._model.get_output_embeddings()(states)
        return logits

    def first_layers(self, count: int | None = None, *, max_lanes: int) -> HFRunner:
        """Return a runner of the first `count` layers, sharing the weights, with its own lanes."""
        graphs = None if self._spec.graphs is None else self._spec.graphs.like()
        model = first_layers(self._model, count)
        return HFRunner(model, name=self._spec.name, max_lanes=max_lanes, graphs=graphs)


def context_of(config: Any) -> int:
    """Return the maximum context in tokens of a model configuration."""
    text = config.get_text_config(decoder=True)
    values = (getattr(text, name, None) for name in CONTEXT_KEYS)
    return next((value for value in values if isinstance(value, int) and value > 0), UNLIMITED)


def load_model(
    model: str | Checkpoint,
    *,
    dtype: str,
    device: str,
    trust_remote_code: bool,
    spread: Spread = ONE_DEVICE,
    on_bytes: OnBytes | None = None,
) -> tuple[Any, str, tuple[str, ...]]:
    """Load a causal language model by name or path, or of a checkpoint that was read.

    Returns the model on its device, the reason for its dtype, and notices for the user. Every failure is a
    UsageError or a ModelError. `on_bytes` is called with the loaded and the total bytes.
    """
    from transformers import AutoConfig
    from transformers.utils import logging

    spread.check(device)
    chosen = pick_device(device)
    pick_dtype(dtype, device=chosen, stored="F32")  # refuses an unknown name before the files are read
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    checkpoint = (
        model
        if isinstance(model, Checkpoint)
        else open_checkpoint(model, trust_remote_code=trust_remote_code)
    )
    number, reason = pick_dtype(dtype, device=chosen, stored=checkpoint.stored)
    options: dict[str, Any] = {} if checkpoint.is_quantized else {"dtype": number}
    if spread.is_on:
        if spread.tp is not None:
            config = AutoConfig.from_pretrained(
                checkpoint.folder, trust_remote_code=trust_remote_code, local_files_only=True
            )
            check_plan(config, spread.tp)
        options |= spread.load_options()
    with watched(checkpoint.table, on_bytes) if on_bytes else nullcontext():
        loaded, report = _load(checkpoint, options, trust_remote_code=trust_remote_code)
    if absent := sorted(report["missing_keys"]):  # which transformers initialises at random
        raise ModelError(
            f"{checkpoint.folder} lacks {len(absent)} of the model's weights, such as {absent[0]}",
            hint="Is this the checkpoint of a base model, an adapter, or an interrupted download?",
        )
    if not spread.is_on:
        with refusing_full(chosen):
            loaded = loaded.to(chosen)
        loaded = widen_head(pack(loaded))
    return loaded, reason, unused_notices(sorted(report["unexpected_keys"]))


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


class WideHead(nn.Module):
    """A linear layer [..., in] -> [..., out] in float32, whatever the format of its input.

    Logits in 16 bits have exact ties: with 8 bits of precision in one of twenty steps at the top. The weights
    have 32 bits, but where products of 16 bits give their sums.
    """

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight = linear.weight.detach()
        is_narrow = adds_wide(weight.dtype, weight.device)
        self.weight = nn.Parameter(weight if is_narrow else weight.float(), requires_grad=False)
        self.bias = (
            None if linear.bias is None else nn.Parameter(linear.bias.detach().float(), requires_grad=False)
        )

    def forward(self, states: Tensor) -> Tensor:
        logits = wide_linear(states.flatten(0, -2), self.weight, self.bias)
        return logits.view(*states.shape[:-1], -1)


def widen_head(model: Any) -> Any:
    """Replace the vocabulary projection of a model in 16 bits in place; return the model."""
    head = model.get_output_embeddings()
    if (
        type(head) is not nn.Linear
        or head.weight.dtype not in (torch.bfloat16, torch.float16)
        or head._forward_hooks
        or head._forward_pre_hooks
    ):
        return model
    for part in list(model.modules()):
        for name, child in list(part.named_children()):
            if child is head:
                setattr(part, name, WideHead(head))
    return model


def first_layers(model: Any, count: int | None = None) -> Any:
    """Return a model of the first `count` layers, by default half of them (rounded up).

    All weights are shared, final norm and vocabulary projection included; `model` is not changed. Raises
    ModelError for an architecture without a single list of layers, and for a count outside
    1..num_layers - 1.
    """
    config = copy.deepcopy(model.config)
    total = config.num_hidden_layers if hasattr(config, "num_hidden_layers") else 0
    base = model.base_model
    lists = ((name, part) for name, part in base.named_children() if isinstance(part, nn.ModuleList))
    name = next((name for name, part in lists if len(part) == total), None)
    if name is None or base is model:
        raise ModelError(
            f"early-exit: {config.model_type} has no plain row of layers to leave.",
            hint="Draft with ngram, suffix or a smaller model.",
        )
    count = first_count(count, total)
    config.num_hidden_layers = count
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:count]
    inner = _shallow_copy(base, config)
    inner._modules[name] = nn.ModuleList(list(getattr(base, name))[:count])
    outer = _shallow_copy(model, config)
    outer._modules[model.base_model_prefix] = inner
    return outer


def first_count(count: int | None, total: int) -> int:
    """Return how many of `total` layers are the first ones, by default half of them (rounded up).

    Raises ModelError for a count outside 1..total - 1.
    """
    count = -(-total // 2) if count is None else count
    if not 1 <= count < total:
        raise ModelError(
            f"early-exit:{count}: the model has {total} layers, so 1 to {total - 1} can be the first."
        )
    return count


def _shallow_copy(module: Any, config: Any) -> Any:
    """Return a copy of the module with its own table of submodules, which are shared."""
    frame = copy.copy(module)
    frame._modules = dict(module._modules)
    frame.config = config
    return frame
