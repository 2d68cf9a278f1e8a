"""Call any causal language model for the logits of chosen positions, with one cache per lane where lanes
cannot share one; and check KV lanes once, at loading, against plain forward passes.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from gencli.core.request import Feed, StepPlan
from gencli.errors import ModelError
from gencli.models.kv.lane_buffers import LaneLengths
from gencli.models.model_runner import LAST
from gencli.models.rope import factors_of, taking_factors
from processors.errors import is_out_of_memory
from processors.graphs import upload

if TYPE_CHECKING:
    from gencli.models.model_runner import Lanes


# Names of the argument that takes a cache: of transformers >= 5.24, of earlier attention models, of earlier
# recurrent models, and of RWKV.
_CACHE_NAMES = ("cache", "past_key_values", "cache_params", "state")


def logits_width(model: Any) -> int:
    """Return the width of the logits (V)."""
    head = model.get_output_embeddings()
    return int(
        model.config.get_text_config(decoder=True).vocab_size if head is None else head.weight.shape[0]
    )


def num_ids(model: Any) -> int:
    return int(model.get_input_embeddings().weight.shape[0])


class LogitsCall:
    """Call a model so that only the wanted columns reach the vocabulary projection.

    `takes_cache`: the signature names a `Cache` of transformers.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        parameters = inspect.signature(model.forward).parameters
        self._can_slice = "logits_to_keep" in parameters
        self.takes_positions = "position_ids" in parameters
        named = next((name for name in _CACHE_NAMES if name in parameters), None)
        self.takes_cache = named in ("cache", "past_key_values")
        if named is None:  # it takes any argument, so also the one of the installed transformers
            from transformers.modeling_outputs import CausalLMOutputWithPast

            named = "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"
        self._cache_name = named

    def __call__(self, wanted: int | Tensor, *, cache: Any = None, **inputs: Any) -> Any:
        """Return the model's outputs; `outputs.logits` is [B, W, V].

        `wanted` is W, the number of last columns, or a tensor [W] of column indices. `cache` goes to the
        argument of the model that takes one.
        """
        if cache is not None:
            inputs[self._cache_name] = cache
        # Layers of Gemma 4 that use the keys and values of earlier ones compute only the last W columns.
        # Without a mask they align several of them with the first keys, unless the attention is named "sdpa".
        # Asked for column indices they compute all.
        text = self._model.config.get_text_config(decoder=True)
        shares_keys = bool(getattr(text, "num_kv_shared_layers", 0))
        if not isinstance(wanted, Tensor) and wanted > 1 and shares_keys:
            ids = inputs["input_ids"]
            wanted = torch.arange(ids.shape[1] - wanted, ids.shape[1], device=ids.device)
        if self._can_slice:
            # transformers reads 0 as "all positions", so a pass without wanted logits computes one.
            inputs["logits_to_keep"] = wanted if isinstance(wanted, Tensor) else max(wanted, 1)
        outputs = self._model(use_cache=True, **inputs)
        if not isinstance(wanted, Tensor):
            outputs.logits = outputs.logits[:, outputs.logits.shape[1] - wanted :]
        elif not self._can_slice:
            outputs.logits = outputs.logits[:, wanted]
        return outputs

    def cache_of(self, outputs: Any) -> Any:
        """Return the cache in the model's outputs; None if there is none."""
        names = _CACHE_NAMES[0], self._cache_name
        return next((lane_cache for name in names if (lane_cache := outputs.get(name)) is not None), None)

    def no_rows(self) -> Tensor:
        """Return the logits of a step without wanted rows: [0, V]."""
        return torch.empty(0, logits_width(self._model), dtype=self._model.dtype, device=self._model.device)


class HiddenStates:
    """Hidden states of a model's passes, by tap (see Inner). `layers`: its row of layers; () without one."""

    def __init__(self, model: Any) -> None:
        self._base = base = model.base_model
        count = getattr(model.config.get_text_config(decoder=True), "num_hidden_layers", 0)
        lists = (part for part in base.children() if isinstance(part, nn.ModuleList) and len(part) == count)
        self.layers: tuple[Any, ...] = tuple(next(lists, ())) if base is not model else ()

    @contextmanager
    def at(self, taps: Collection[int]) -> Iterator[dict[int, Tensor]]:
        """While active, each pass leaves its states [B, Q, H] at `taps` in the mapping."""
        states: dict[int, Tensor] = {}

        def before(tap: int, _: Any, args: Any, kwargs: Any) -> None:
            states[tap] = args[0] if args else kwargs["hidden_states"]

        def behind(tap: int, _: Any, __: Any, output: Any) -> None:
            states[tap] = output if isinstance(output, Tensor) else output[0]

        with ExitStack() as stack:
            for tap in taps:
                if 0 <= tap < len(self.layers):
                    hook = self.layers[tap].register_forward_pre_hook(partial(before, tap), with_kwargs=True)
                else:
                    module = self._base if tap == LAST else self.layers[-1]
                    hook = module.register_forward_hook(partial(behind, tap))
                stack.callback(hook.remove)
            yield states


@dataclass(slots=True)
class _Lane:
    """The model's cache, its length in tokens, and prompt tokens not fed yet.

    `factors` is the number of the rotary factors of its text (see LongRopeLanes).
    """

    cache: Any = None
    length: int = 0
    unread: tuple[int, ...] = ()
    factors: int = 0


class OwnCacheLanes:
    """Lanes of recurrent, hybrid and older models: slower than shared lanes, correct by construction.

    Some recurrent models (Mamba) lose their state when several tokens are fed after the first pass. So an
    `is_recurrent` model is fed a chunked prompt in one pass with its last chunk, and every later token in a
    pass of its own.
    """

    def __init__(
        self, model: Any, *, is_recurrent: bool, can_rollback: bool, rope_switches: tuple[int, ...] = ()
    ) -> None:
        self.can_rollback = can_rollback
        self._rope_switches = rope_switches
        self._is_recurrent = is_recurrent
        self._call = LogitsCall(model)
        self._device: torch.device = model.device
        self._lanes: dict[int, _Lane] = {}

    def forward(self, feeds: tuple[Feed, ...]) -> Tensor:
        rows = [row for feed in feeds for row in self._read(feed)]
        return torch.cat(rows) if rows else self._call.no_rows()

    def truncate(self, lane: int, length: int) -> None:
        """Crop the cache of an attention model to `length` tokens."""
        state = self._lanes[lane]
        state.cache.crop(length - state.length)
        state.length = length

    def fork(self, source: int, target: int) -> None:
        if source in self._lanes:
            self._lanes[target] = copy.deepcopy(self._lanes[source])

    def release(self, lane: int) -> None:
        self._lanes.pop(lane, None)

    def free_cache(self) -> None:
        """No-op: `release` frees the cache of a lane."""

    def _read(self, feed: Feed) -> list[Tensor]:
        """Return the wanted logits of a feed, as tensors [1, V] or [wanted, V] in order."""
        lane = self._lanes.setdefault(feed.lane, _Lane())
        tokens = lane.unread + feed.tokens
        lane.unread = ()
        lane.factors = factors_of(feed, self._rope_switches)
        if not self._is_recurrent:
            return [self._run(lane, tokens, feed.num_logits)]
        if lane.cache is not None:
            skipped = len(tokens) - feed.num_logits
            return [self._run(lane, (token,), int(i >= skipped)) for i, token in enumerate(tokens)]
        if feed.num_logits == 0:
            lane.unread = tokens
            return []
        return [self._run(lane, tokens, feed.num_logits)]

    def _run(self, lane: _Lane, tokens: tuple[int, ...], wanted: int) -> Tensor:
        start, lane.length = lane.length, lane.length + len(tokens)
        inputs = {"input_ids": upload([tokens], self._device)}
        if self._call.takes_positions:  # some models count from 0 in every call without them
            inputs["position_ids"] = torch.arange(start, lane.length, device=self._device)[None]
        switches, device = self._rope_switches, self._device
        with taking_factors([lane.factors], switches, length=lane.length, device=device):
            outputs = self._call(wanted, **inputs, cache=lane.cache)
        lane.cache = self._call.cache_of(outputs)
        if lane.cache is None:
            raise ModelError("This model returns no cache, so it cannot continue what it has read")
        logits: Tensor = outputs.logits[0]
        return logits


_NUM_LANES, _LENGTH = 3, 6  # lanes, and tokens per lane, of the check
# Tolerated error of logits relative to their spread, in float32 and in other formats. A token that sees
# another lane, or has a wrong position, changes the logits completely.
_EXACT, _ROUNDED = 1e-2, 0.25


class SelfCheck:
    """Compare lanes with one pass over two short texts without a cache: four small passes in all.

    Raises ModelError for a model that cannot be run.
    """

    def __init__(self, model: Any) -> None:
        self._num_ids = num_ids(model)
        try:
            self._texts = _texts(model)
            with torch.inference_mode():
                inputs = {"input_ids": upload([list(text) for text in self._texts], model.device)}
                if LogitsCall(model).takes_positions:
                    inputs["position_ids"] = torch.arange(_LENGTH, device=model.device).expand(2, -1)
                self._expected: Tensor = model(use_cache=False, **inputs).logits.float()
        except Exception as error:  # models raise exceptions of any type
            kind = model.config.get_text_config(decoder=True).model_type
            raise ModelError(f"{kind} models cannot be run: {_fault_of(error)}") from error
        is_exact = model.dtype == torch.float32 and not getattr(model, "is_quantized", False)
        self._tolerance = _EXACT if is_exact else _ROUNDED

    @torch.inference_mode()
    def fault(self, make_lanes: Callable[[LaneLengths], Lanes], *, decodes: bool = False) -> str:
        """Return the fault of new lanes in a few words; "" for correct ones.

        Two lanes are fed texts of different length, drafts are truncated, a fork continues from an earlier
        position than its source, and several tokens are fed after a prompt. With `decodes` all lanes, which
        can roll back, are fed one token at last.
        """
        lengths = LaneLengths(max_lanes=_NUM_LANES, context=_LENGTH, num_ids=self._num_ids)
        lanes = make_lanes(lengths)
        try:
            worst = max(self._errors(lanes, lengths, decodes=decodes))
        except Exception as error:  # models raise exceptions of any type
            return _fault_of(error)
        return f"its logits are off by {worst:.0%} of their spread" if worst > self._tolerance else ""

    def _errors(self, lanes: Lanes, lengths: LaneLengths, *, decodes: bool) -> list[float]:
        first, second = self._texts
        # A model without rollback takes no drafts.
        drafts = second[:2] if lanes.can_rollback else ()
        steps = (
            (Feed(0, 0, first[:2], 2), Feed(1, 0, second[:4])),
            (Feed(0, 2, (first[2], *drafts), 1 + len(drafts)), Feed(1, 4, second[4:5])),
            (Feed(2, 3, first[3:], 3), Feed(1, 5, second[5:])),
            (Feed(0, 3, first[3:4]), Feed(1, 5, second[5:]), Feed(2, 5, first[5:])),
        )
        first_logits, second_logits = self._expected
        expected = (
            torch.cat([first_logits[:2], second_logits[3:4]]),
            torch.cat([first_logits[2:3], second_logits[4:5]]),
            torch.cat([first_logits[3:], second_logits[5:]]),
            torch.cat([first_logits[3:4], second_logits[5:], first_logits[5:]]),
        )
        errors = []
        for number, feeds in enumerate(steps if decodes else steps[:3]):
            if number == 2:
                lanes.fork(0, 2)
                lengths.fork(0, 2)
                if drafts:
                    lanes.truncate(2, 3)
                    lengths.truncate(2, 3)
            for feed in feeds if number == 3 else ():
                lanes.truncate(feed.lane, feed.start)
                lengths.truncate(feed.lane, feed.start)
            rows = lanes.forward(feeds)
            lengths.advance(StepPlan(feeds))
            rows = torch.cat([rows[:1], rows[-1:]]) if number == 1 else rows
            errors.append(_error(rows.float(), expected[number]))
        return errors


def _fault_of(error: Exception) -> str:
    """Return an exception of a model as one line. Raises ModelError if the memory is full."""
    if is_out_of_memory(error):
        raise ModelError("The model fits into the memory, but its first passes do not.") from error
    return f"{type(error).__name__}: {next(iter(str(error).strip().splitlines()), '')}"


def _texts(model: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return two texts of ids from all over the vocabulary, without special ids of the configuration."""
    count, config = num_ids(model), model.config
    special = {
        value
        for part in (config, config.get_text_config(decoder=True))
        for name, values in vars(part).items()
        if "token" in name
        for value in (values if isinstance(values, list | tuple) else (values,))
    }
    plain = [token for token in range(min(count, 1000)) if token not in special] or [0]
    picked = [plain[(7 + 31 * index) % len(plain)] for index in range(2 * _LENGTH)]
    return tuple(picked[:_LENGTH]), tuple(picked[_LENGTH:])


def _error(rows: Tensor, expected: Tensor) -> float:
    """Return the largest error of rows [R, V] relative to their spread; 0 for rows that are not finite."""
    spread = (expected - expected.mean(-1, keepdim=True)).norm(dim=-1).clamp_min(1e-12)
    return float(((rows - expected).norm(dim=-1) / spread).nan_to_num(0.0).max())
