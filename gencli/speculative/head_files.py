"""The files of trained draft heads: the kind of a folder, its configuration as a record of each kind, and its
tensors under one set of names. A key or tensor that no rule here knows is refused: it may change what a head
computes.

The names are those of the native decoder where it has the part, so that it reads layers as its own:

    model.embed_tokens.weight [V, H], model.layers.{i}.*, model.norm.weight [H], lm_head.weight [Vd, H]
    fc.weight, fc.bias           of EAGLE-1 [H, 2H], of EAGLE-3 [H, taps * Ht] without a bias
    model.layers.0.hidden_norm.weight    of EAGLE-3 [H], whose first layer reads [embedding, feature], 2H wide
    input_norm.weight [taps * Ht], fc_norm.{tap}.weight [Ht]     before fc of EAGLE-3
    d2t, t2d, token_map          the draft vocabulary, which HeadFile.token_ids reads
    blocks.{head}.{i}.weight|bias, heads.{head}.weight           of Medusa; lm_head.weight if heads share it
    mtp.{layer}.embed_norm|hidden_norm|fc|norm.weight            of MTP: fc [H, 2H], norm behind the layer
    fc.weight [H, taps * Ht], hidden_norm.weight [H]             of DFlash, with ordinary layers
    markov_head.markov_w1.weight [V, r], markov_w2.weight [Vd, r]       of DSpark
    markov_head.gate_proj [r, H + r] or joint_proj [3r, 2r + H].weight|bias     of DSpark, gated or rnn
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from itertools import count, product, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, get_args

from gencli.errors import ModelError, UsageError
from gencli.helpers import shortened
from gencli.models.decoder.families import IGNORED, DecoderSpec, Unsupported, read_spec
from gencli.models.files.checkpoint import check_config, read_folder, weight_files
from gencli.models.files.gguf_header import is_gguf, read_gguf_head
from gencli.models.files.gguf_metadata import sources_of
from gencli.models.files.model_files import OnBytes, StoredTensor, read_table

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from gencli.models.decoder.weight_readers import WeightReader

Kind = Literal["eagle1", "eagle3", "medusa", "mtp", "dflash", "dspark"]
Markov = Literal["vanilla", "gated", "rnn"]
_LAST = -1  # the tap of the states behind the final norm
_MAX_HEADS, _MAX_BLOCKS, _MAX_TAPS, _MAX_BLOCK_SIZE = 16, 16, 16, 64
_FIT = "Was the head trained for this model?"


class Target(Protocol):
    """The sizes of the model that a head drafts for; a DecoderSpec has them."""

    @property
    def hidden(self) -> int: ...
    @property
    def num_layers(self) -> int: ...
    @property
    def vocab_size(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Eagle1Config:
    """EAGLE-1: layer 0 has no norm before attention, and there is none behind the last. `has_bias`: of fc."""

    spec: DecoderSpec
    has_bias: bool


@dataclass(frozen=True, slots=True)
class Eagle3Config:
    """EAGLE-3. `taps` are indices of the target's hidden states, which fc reads.

    Without `has_fc` the feature is the one tap -1, the states behind the final norm. `draft_vocab` is Vd,
    `target_hidden` Ht. With `norm_before_residual` the residual is the normed feature; with `norm_output` the
    state behind the final norm is fed back. Before fc is one norm over all taps (`norm_before_fc`) or one for
    each (`fc_norm`). Logits are multiplied by `logit_scale`.
    """

    spec: DecoderSpec
    taps: tuple[int, ...]
    target_hidden: int
    draft_vocab: int
    has_fc: bool
    logit_scale: float
    norm_before_residual: bool
    norm_before_fc: bool
    fc_norm: bool
    norm_output: bool


@dataclass(frozen=True, slots=True)
class MedusaConfig:
    """Medusa: heads of `num_layers` blocks x + silu(linear(x)), and a projection to `rows` tokens.

    If `draft_vocab` is smaller, `token_ids` are the rows to take. With `has_shared_head` all heads have one
    projection.
    """

    num_heads: int
    num_layers: int
    rows: int
    draft_vocab: int
    has_bias: bool
    has_shared_head: bool


@dataclass(frozen=True, slots=True)
class MtpConfig:
    """Layers for multi-token prediction: `spec` has these, not the target's.

    With `hidden_first` fc reads [hidden_norm(state), embed_norm(embedding)], else the reverse.
    """

    spec: DecoderSpec
    hidden_first: bool


@dataclass(frozen=True, slots=True)
class BlockConfig:
    """DFlash and DSpark: one pass over a block of the newest token and `block_size` - 1 masks `mask_id`.

    `taps`, `target_hidden` and `draft_vocab` are as those of EAGLE-3. The newest token's place gives a draft
    too if the head `samples_anchor`. In layers without a window attention in the block `is_causal` or not.
    `markov` is the kind of DSpark's bias from the token before, of `markov_rank`; None: there is none.
    """

    spec: DecoderSpec
    taps: tuple[int, ...]
    target_hidden: int
    draft_vocab: int
    block_size: int
    mask_id: int
    samples_anchor: bool
    is_causal: bool
    markov: Markov | None
    markov_rank: int


@dataclass(frozen=True, slots=True, eq=False)
class HeadFile:
    """A head's folder, or its GGUF file: `tensors` by the names above, `notices` for the user.

    `mapped` are the tensors of a file of torch.save; {} for safetensors. `vocab_size` is the target's.
    """

    folder: Path
    kind: Kind
    config: Eagle1Config | Eagle3Config | MedusaConfig | MtpConfig | BlockConfig
    tensors: Mapping[str, StoredTensor]
    vocab_size: int
    mapped: Mapping[str, Tensor] = field(default_factory=dict)
    notices: tuple[str, ...] = ()

    @property
    def lane_values(self) -> int:
        """The values that a token adds to a lane of the head: its feature, keys and values."""
        if isinstance(self.config, MedusaConfig):
            return 0
        spec = self.config.spec
        features = 0 if isinstance(self.config, BlockConfig) else spec.hidden
        return features + 2 * spec.num_layers * spec.num_kv_heads * spec.head_dim

    @contextmanager
    def reader(
        self, dtype: torch.dtype, device: torch.device, on_bytes: OnBytes | None = None
    ) -> Iterator[WeightReader]:
        """Read tensors as `dtype` on `device`, from files that are open within the block.

        Raises ModelError for an absent tensor or another shape, and at the end for one that was not read.
        """
        from gencli.models.decoder.weight_readers import SafetensorsReader, open_tensors
        from gencli.models.files.torch_files import MappedReader, MappedTensors

        with _naming(self.folder), ExitStack() as stack:
            reader: WeightReader
            if self.mapped:
                reader = MappedReader(MappedTensors(self.tensors, self.mapped), dtype, device, on_bytes)
            elif is_gguf(self.folder):
                from gencli.models.files.gguf_weights import open_gguf

                reader = stack.enter_context(open_gguf(self.folder, dtype, device, on_bytes))
                reader.unread &= self.tensors.keys()
            else:
                opened = stack.enter_context(open_tensors(self.tensors))
                reader = SafetensorsReader(opened, dtype, device, on_bytes)
            yield reader
            if reader.unread:
                raise Unsupported(f"nothing reads the tensor {min(reader.unread)}")

    def token_ids(self, reader: WeightReader) -> Tensor | None:
        """Return the target's ids [Vd] int64 of the draft vocabulary; None if that is the target's.

        Raises ModelError for ids outside of the target's vocabulary, and for two that are the same.
        """
        import torch

        assert isinstance(self.config, Eagle3Config | MedusaConfig | BlockConfig)
        size, name = self.config.draft_vocab, "token_map" if self.kind == "medusa" else "d2t"
        if size == self.vocab_size and name not in reader:
            return None
        ids = reader.joined([name], (size,), dtype=torch.int64)
        if name == "d2t" and not is_gguf(self.folder):  # offsets; GGUF files have the ids
            ids = ids + torch.arange(size, device=ids.device)
        ordered = ids.sort().values
        if ordered[0] < 0 or ordered[-1] >= self.vocab_size or (ordered[1:] == ordered[:-1]).any():
            raise ModelError(
                f"{name} gives no different ids below {self.vocab_size}, the model's vocabulary."
            )
        if "t2d" in reader:
            is_used = reader.joined(["t2d"], (self.vocab_size,), dtype=torch.bool)
            if not torch.equal(is_used.nonzero().flatten(), ordered):
                raise ModelError("The tensors d2t and t2d contradict each other.")
        return ids


def is_head(name: str) -> bool:
    """Return whether a folder holds a draft head, not a model. Raises ModelError for a damaged one."""
    return holds_head(*read_folder(name))


def holds_head(folder: Path, config: Mapping[str, Any]) -> bool:
    """Return whether a folder with this configuration holds a draft head, not a model.

    Raises ModelError for a kind that this version does not have, and for damaged weights.
    """
    with _naming(folder):
        if _named_kind(config) is not None:
            return True
        names: Iterable[str] = read_table(sorted(folder.glob("*.safetensors")))
        if (path := _pickle(folder)) is not None:
            names, _ = _read(folder, (), path.stat().st_size)
        return any(name in ("fc.weight", "model.fc.weight") for name in names)


def open_head(name: str, target: Target) -> HeadFile:
    """Open the head in a folder or a GGUF file, or of a hub name in the cache.

    Raises ModelError for a kind, key, tensor or size that this version does not have, naming it.
    """
    folder, config = read_folder(name)
    with _naming(folder):
        kind = _named_kind(config)
        layers = _layers(config, _BLOCK_KEYS if kind in ("dflash", "dspark") else _EAGLE_KEYS)
        check_config(folder, layers)
        if kind == "mtp":
            return _open_mtp(folder, layers, target, hidden_first=False)
        if kind == "medusa":
            return _open_medusa(folder, config, target)
        if kind == "dflash" or kind == "dspark":
            return _open_block(folder, config, layers, target, kind)
        return _open_eagle(folder, config, layers, target, kind)


def open_mtp(name: str, target: Target) -> HeadFile:
    """Open the layers for multi-token prediction in the target's own folder.

    Raises UsageError if it has none, ModelError if they are of a kind that this version does not have.
    """
    folder, config = read_folder(name)
    if is_gguf(folder):
        raise ModelError(f"Layers for multi-token prediction are not read from GGUF files: {folder}")
    with _naming(folder):
        return _open_mtp(folder, config, target, hidden_first=True)


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Name the folder in errors, and raise ModelError for Unsupported. A GGUF file has no config.json."""
    own = "metadata" if is_gguf(folder) else "config.json"
    try:
        yield
    except Unsupported as error:
        raise ModelError(
            f"{folder}: the draft head is not known in full: {error}.".replace("config.json", own),
            hint="A part that is left out would change its drafts; a newer version may have it",
        ) from None
    except ModelError as error:
        where = "" if str(folder) in error.message else f"{folder}: "
        message = (where + error.message).replace("config.json", own)
        raise ModelError(message, hint=error.hint.replace("config.json", own)) from None


_OTHERS = {  # kinds that this version does not have, by a part of the names in config.json
    "dflash2": "DFlash2",
    "domino": "Domino",
    "peagle": "P-EAGLE",
    "mlpspeculator": "MLP speculator",
    "gemma4assistant": "Gemma 4 assistant",
}


def _named_kind(config: Mapping[str, Any]) -> Kind | None:
    """Return the kind that a configuration names; None if it names a model, as many of EAGLE do.

    Raises ModelError for a kind that this version does not have.
    """
    layout, blocks = config.get("speculators_model_type"), config.get("dflash_config")
    projector = blocks.get("projector_type") if isinstance(blocks, Mapping) else None
    names = [layout, config.get("model_type"), *_list(config.get("architectures")), projector]
    called = re.sub(r"[_-]", "", " ".join(map(str, names)).lower())
    other = next((kind for part, kind in _OTHERS.items() if part in called), "")
    if config.get("parallel_drafting") or config.get("mask_hidden") is not None:
        other = "P-EAGLE"
    if not other and layout not in (None, "eagle3", "mtp", "dflash", "dspark"):
        other = f"{shortened(str(layout), 40)} of speculators"
    if other:
        raise ModelError(
            f"Draft heads of the kind {other} are not among those of this version.",
            hint="They are EAGLE-1, EAGLE-3, Medusa, DFlash, DSpark, and layers for multi-token prediction",
        )
    if layout == "mtp":
        return "mtp"
    if "dspark" in called or "dflash" in called or isinstance(blocks, Mapping):
        return "dspark" if "dspark" in called else "dflash"
    if "eagle3" in called or "draft_vocab_size" in config:
        return "eagle3"
    if "medusa" in called or "medusa_num_heads" in config:
        return "medusa"
    return "eagle1" if "eagle" in called else None


_NO_EFFECT = IGNORED | frozenset(  # of training and of other programs, or said by the tensors themselves
    """
    auto_map base_model_name_or_path bias embed_requires_grad has_lm_head max_window_layers
    num_aux_hidden_states num_eagle_features qkv_bias speculators_config speculators_model_type
    speculators_version target_model_type
    """.split()
)
_FLAGS = ("norm_before_residual", "norm_before_fc", "fc_norm", "norm_output")
_IDS = "eagle_aux_hidden_state_layer_ids"
_EAGLE_KEYS = _NO_EFFECT | {
    *(*_FLAGS, _IDS, "draft_vocab_size", "eagle_config", "logit_scale", "parallel_drafting"),
    *("target_hidden_size", "use_aux_norm"),
}
_BLOCK = frozenset(  # of a block, in dflash_config or beside it
    """
    block_size causal mask_token_id markov_head_type markov_rank sample_from_anchor target_layer_ids
    attention_mode confidence_head_alpha confidence_head_with_markov enable_confidence_head projector_type
    """.split()
)
_BLOCK_KEYS = (
    _NO_EFFECT
    | _BLOCK
    | {
        *("aux_hidden_state_layer_ids", "dflash_config", "draft_vocab_size", "num_target_layers"),
        *("sliding_window_non_causal", "target_hidden_size"),
    }
)
_SAME = {  # values in eagle_config that say what every EAGLE-3 does
    "use_input_layernorm_in_first_layer": True,
    "use_last_layernorm": True,
    "use_mtp_layernorm": False,
    "next_layer_regular": True,
    "parallel_draft_step": 1,
}
_MEDUSA_KEYS = _NO_EFFECT | {
    *("medusa_num_heads", "medusa_num_layers", "num_heads", "num_hidden_layers", "hidden_size", "vocab_size"),
    *("truncated_vocab_size", "original_lm_head", "medusa_fc_bias", "num_lookahead_tokens"),
    *("max_paths", "topk", "max_seq_len", "max_position_embeddings", "version"),
}


def _layers(config: Mapping[str, Any], known: frozenset[str] | set[str]) -> Mapping[str, Any]:
    """Return the configuration of layers: nested in the format of speculators, else all of it.

    `known` are the keys of the kind that are not of layers.
    """
    if "speculators_model_type" not in config:
        return config
    _check_keys(config, known | {"transformer_layer_config", "tie_word_embeddings"})
    if not isinstance(layers := config.get("transformer_layer_config"), Mapping):
        raise ModelError("config.json has no object transformer_layer_config.")
    return layers


Renames = Sequence[tuple[str, str]]  # patterns and what replaces them, one after the other
_EAGLE: Renames = (
    (r"^model\.", ""),
    (r"^midlayer\.", "layers.0."),
    (r"^logit_head\.", ""),  # early files of DSpark
    (r"^(embed_tokens|layers|norm)\.", r"model.\1."),
)
# The confidence of DSpark says how many drafts to verify, and none of them.
_UNUSED = re.compile(
    r"(.*\.)?rotary_emb\.inv_freq|verifier_(norm|lm_head)\.weight|(.*\.)?confidence_head\.proj\.(weight|bias)"
)
_SLACK = 2**20  # bytes of a pickle, names and paddings


def _renamed(table: Mapping[str, Any], renames: Renames) -> dict[str, Any]:
    """Return the tensors that may be read by new names. Raises ModelError if two have the same."""
    tensors: dict[str, Any] = {}
    for name, stored in table.items():
        new = name
        for pattern, replacement in renames:
            new = re.sub(pattern, replacement, new)
        if new in tensors:
            raise ModelError(f"The tensor {new} is there twice, once as {name}.")
        if not _UNUSED.fullmatch(name):
            tensors[new] = stored
    return tensors


def _read(
    folder: Path, renames: Renames, numbers: int
) -> tuple[dict[str, StoredTensor], Mapping[str, Tensor]]:
    """Return the tensors of a folder by new names, and those of a file of torch.save as HeadFile has them.

    `numbers` is how many its configuration asks for at most.
    """
    if is_gguf(folder):
        sources = _renamed(sources_of(read_gguf_head(folder)), ())
        parts = {name: (part.tensor, part.shape) for name, part in sources.items()}
        return {
            name: StoredTensor(name, stored.path, stored.kind.name, shape, stored.start, stored.nbytes)
            for name, (stored, shape) in parts.items()
        }, {}
    if (path := _pickle(folder)) is not None:
        from gencli.models.files.torch_files import read_torch_file, stored_tensors

        mapped = _renamed(read_torch_file(path, 8 * numbers + _SLACK), renames)
        return stored_tensors(path, mapped), mapped
    files = sorted(folder.glob("medusa_lm_head.safetensors")) or weight_files(folder)
    table = _renamed(read_table(files), renames)
    return {name: replace(stored, name=name) for name, stored in table.items()}, {}


def _pickle(folder: Path) -> Path | None:
    """Return the file of torch.save in a folder without safetensors; None without one."""
    if any(folder.glob("*.safetensors*")):
        return None
    paths = (folder / "pytorch_model.bin", folder / "medusa_lm_head.pt")
    return next((path for path in paths if path.exists()), None)


def _open_eagle(
    folder: Path, config: Mapping[str, Any], layers: Mapping[str, Any], target: Target, kind: Kind | None
) -> HeadFile:
    """Open EAGLE-1 or EAGLE-3, whose layers are those of Llama whatever their configuration is called."""
    types = _list(layers.get("layer_types"))
    if layers.get("use_sliding_window") or any(name != "full_attention" for name in types):
        raise Unsupported("its layers have sliding windows")
    known = {key: value for key, value in layers.items() if key not in _EAGLE_KEYS}
    spec, table, mapped = _read_layers(folder, config, {**known, "model_type": "llama"}, target)
    layer = "model.layers.0."
    if kind == "eagle3" or f"{layer}hidden_norm.weight" in table:
        eagle3, notices = _eagle3_config(config, spec, target, table)
        return HeadFile(folder, "eagle3", eagle3, table, target.vocab_size, mapped, notices)
    if "fc.weight" not in table:
        raise ModelError(
            "config.json names no kind of draft head, and there are no weights fc.",
            hint="A draft model is a folder with weights in safetensors",
        )
    _check_fit("states as wide as", spec.hidden, target.hidden)
    eagle1 = Eagle1Config(spec, "fc.bias" in table or config.get("bias") is True)
    return HeadFile(folder, "eagle1", eagle1, table, target.vocab_size, mapped)


def _read_layers(
    folder: Path, config: Mapping[str, Any], layers: Mapping[str, Any], target: Target
) -> tuple[DecoderSpec, dict[str, StoredTensor], Mapping[str, Tensor]]:
    """Return the spec of a head's layers, with what its tensors say, and these as `_read` does.

    Raises ModelError if they do not fit the target.
    """
    spec = read_spec(layers)
    if spec.rope_switches:
        raise Unsupported("its rotary embedding is longrope")
    target_hidden = _whole(config, "target_hidden_size", spec.hidden)
    _check_fit("states as wide as", target_hidden, target.hidden)
    _check_fit("a vocabulary of", spec.vocab_size, target.vocab_size)
    numbers = 2 * sum(rows * columns * times for (rows, columns), times in spec.products.items())
    table, mapped = _read(folder, _EAGLE, numbers + _MAX_TAPS * spec.hidden * target_hidden)
    layer = "model.layers.0."
    spec = replace(
        spec,
        has_qkv_bias=spec.has_qkv_bias or f"{layer}self_attn.q_proj.bias" in table,
        has_out_bias=f"{layer}self_attn.o_proj.bias" in table,
        has_mlp_bias=spec.has_mlp_bias or f"{layer}mlp.down_proj.bias" in table,
        qk_norm="head" if f"{layer}self_attn.q_norm.weight" in table else None,
    )
    if spec.hidden != target.hidden:
        _shape(table, "model.embed_tokens.weight")
    return spec, table, mapped


def _eagle3_config(
    config: Mapping[str, Any], spec: DecoderSpec, target: Target, table: Mapping[str, StoredTensor]
) -> tuple[Eagle3Config, tuple[str, ...]]:
    """Return the configuration of EAGLE-3, and notices about what it leaves open."""
    notices = []
    flags = {key: _flag(config, key) for key in _FLAGS}
    if "speculators_model_type" in config and flags["norm_before_residual"] is None:
        flags["norm_before_residual"] = True
        notices.append("The draft head does not say norm_before_residual; true is taken, as vLLM does")
    flags["fc_norm"] = flags["fc_norm"] or _flag(config, "use_aux_norm")
    draft_vocab = _whole(config, "draft_vocab_size", spec.vocab_size)
    if draft_vocab != spec.vocab_size or spec.hidden != target.hidden:
        _shape(table, "lm_head.weight")
    if not isinstance(nested := config.get("eagle_config") or {}, Mapping):
        raise ModelError("config.json: eagle_config is no object.")
    for key, value in nested.items():
        if key not in (_IDS, "use_aux_hidden_state") and value is not None and _SAME.get(key) != value:
            raise Unsupported(f"eagle_config has {key!r} = {shortened(repr(value), 40)}")
    has_fc = _flag(nested, "use_aux_hidden_state") is not False
    width = _shape(table, "fc.weight")[1] if has_fc else 0
    taps = _taps(config, nested, target, width, notices) if has_fc else (_LAST,)
    scale = 1.0 if config.get("logit_scale") is None else config["logit_scale"]
    if type(scale) not in (int, float) or not abs(scale) < 1e30:
        raise ModelError(f"config.json: logit_scale is {shortened(repr(scale), 40)}, no such number.")
    switches = {key: bool(value) for key, value in flags.items()}
    eagle3 = Eagle3Config(spec, taps, target.hidden, draft_vocab, has_fc, float(scale), **switches)
    return eagle3, tuple(notices)


def _taps(
    config: Mapping[str, Any], nested: Mapping[str, Any], target: Target, width: int, notices: list[str]
) -> tuple[int, ...]:
    """Return the taps of a head whose fc reads `width` values; add what is assumed to `notices`."""
    taps: tuple[int, ...] = (2, target.num_layers // 2, target.num_layers - 3)
    if not (ids := config.get(_IDS) or nested.get(_IDS)):
        notices.append(f"The draft head does not say which states it reads; {_shown(taps)} are taken")
    elif not isinstance(ids, list) or len(ids) > _MAX_TAPS or any(type(tap) is not int for tap in ids):
        raise ModelError(f"config.json: {_IDS} is {shortened(repr(ids), 60)}.")
    elif ids[0] == 1 and not config.get(_IDS):
        # SpecForge counts layers there, of which it reads the outputs; SGLang tells that by the first number.
        taps = tuple(tap + 1 for tap in ids)
        notices.append(f"{_IDS} of the draft head begin with 1: outputs of layers, states {_shown(taps)}")
    else:
        taps = tuple(ids)
    _check_taps(taps, width, target, _IDS)
    return taps


def _check_taps(taps: tuple[int, ...], width: int, target: Target, key: str) -> None:
    """Raise ModelError if the target has no such states, or fc reads `width` values that are not theirs."""
    if width != len(taps) * target.hidden:
        reason = f"fc reads {width} values, but {len(taps)} states of {target.hidden} are named"
        raise ModelError(f"{reason} or assumed.", hint=f"{_FIT} {key} in its config.json name the states")
    if not all(0 <= tap <= target.num_layers for tap in taps):
        raise ModelError(
            f"It reads states {_shown(taps)} of a model of {target.num_layers} layers.", hint=_FIT
        )


def _open_block(
    folder: Path,
    config: Mapping[str, Any],
    layers: Mapping[str, Any],
    target: Target,
    kind: Literal["dflash", "dspark"],
) -> HeadFile:
    """Open DFlash or DSpark, whose layers are those of Qwen3 whatever their configuration is called."""
    if not isinstance(nested := config.get("dflash_config") or {}, Mapping):
        raise ModelError("config.json: dflash_config is no object.")
    _check_keys(nested, _BLOCK)
    options, notices = {key: config[key] for key in _BLOCK & config.keys()} | {**nested}, list[str]()
    known = {key: value for key, value in layers.items() if key not in _BLOCK_KEYS - {"max_window_layers"}}
    spec, table, mapped = _read_layers(folder, config, {**known, "model_type": "qwen3"}, target)
    spec = replace(spec, qk_norm="head", is_tied=False)
    if _flag(config, "sliding_window_non_causal") and any(spec.windows):
        raise Unsupported("its layers have sliding windows that are not causal")
    count = _whole(config, "num_target_layers", target.num_layers)
    _check_fit("a number of layers of", count, target.num_layers)
    draft_vocab = _whole(config, "draft_vocab_size", spec.vocab_size)
    if draft_vocab != spec.vocab_size or spec.hidden != target.hidden:
        _shape(table, "lm_head.weight")
    taps = _block_taps(config, options, spec.num_layers, target, notices)
    _check_taps(taps, _shape(table, "fc.weight")[1], target, "target_layer_ids")
    mask_id = options.get("mask_token_id")
    if type(mask_id) is not int or not 0 <= mask_id < target.vocab_size:
        shown = shortened(repr(mask_id), 40)
        raise ModelError(f"config.json: mask_token_id is {shown}, no token of the model.", hint=_FIT)
    samples_anchor = _flag(options, "sample_from_anchor")
    if samples_anchor is None:
        samples_anchor = kind == "dspark"
        if samples_anchor:
            notices.append(
                "The draft head does not say sample_from_anchor; true is taken, as DSpark is trained"
            )
    rank, markov = 0, None
    if "markov_head.markov_w1.weight" in table or options.get("markov_rank"):
        rank, name = _shape(table, "markov_head.markov_w1.weight")[1], options.get("markov_head_type")
        markov = next((one for one in get_args(Markov) if one == (name or "vanilla")), None)
        if markov is None:
            raise Unsupported(f"markov_head_type is {shortened(repr(name), 40)}")
    if (size := _whole(options, "block_size", 0, _MAX_BLOCK_SIZE)) < 2:
        raise ModelError("config.json names no block_size of two tokens or more.")
    if any(window is not None and window < size for window in spec.windows):
        raise Unsupported("its sliding windows are shorter than a block")
    is_causal = bool(_flag(options, "causal"))
    block = BlockConfig(
        spec, taps, target.hidden, draft_vocab, size, mask_id, samples_anchor, is_causal, markov, rank
    )
    return HeadFile(folder, kind, block, table, target.vocab_size, mapped, tuple(notices))


def _block_taps(
    config: Mapping[str, Any], options: Mapping[str, Any], layers: int, target: Target, notices: list[str]
) -> tuple[int, ...]:
    """Return the taps of DFlash: the reference names layers whose outputs it reads, speculators states."""
    key, offset, ids = "target_layer_ids", 1, options.get("target_layer_ids")
    if "speculators_model_type" in config:
        key, offset, ids = "aux_hidden_state_layer_ids", 0, config.get("aux_hidden_state_layer_ids")
    elif ids is None:  # from layer 1 to the fourth from the end
        step = (target.num_layers - 4) / max(layers - 1, 1)
        ids = [round(1 + i * step) for i in range(layers)] if layers > 1 else [target.num_layers // 2]
        notices.append(f"The draft head does not say which layers it reads; {_shown(ids)} are taken")
    numbers = _list(ids)
    if not 0 < len(numbers) <= _MAX_TAPS or any(type(number) is not int for number in numbers):
        raise ModelError(f"config.json: {key} is {shortened(repr(ids), 60)}.")
    return tuple([number + offset for number in numbers])


def _open_medusa(folder: Path, config: Mapping[str, Any], target: Target) -> HeadFile:
    _check_keys(config, _MEDUSA_KEYS)
    key = "medusa_num_layers" if "medusa_num_layers" in config else "num_hidden_layers"
    hidden, num_layers = target.hidden, _whole(config, key, 1, most=_MAX_BLOCKS)
    _check_fit("states as wide as", _whole(config, "hidden_size", hidden), hidden)
    renames: Renames = (
        (r"^(medusa_heads?|model)\.", ""),
        (rf"^(\d+)\.{num_layers}\.weight$", r"heads.\1.weight"),
        (r"^(\d+)\.(\d+)\.linear\.", r"blocks.\1.\2."),
        (r"^blocks\.(\d+)\.layers\.", r"blocks.\1."),
        (r"^lm_heads\.", "heads."),
    )
    numbers = _MAX_HEADS * (target.vocab_size + num_layers * (hidden + 1)) * hidden
    table, mapped = _read(folder, renames, numbers)
    # Published configurations say 2 heads and files have 5.
    num_heads = len([*takewhile(lambda head: f"blocks.{head}.0.weight" in table, range(_MAX_HEADS))])
    _check_fit("states as wide as", _shape(table, "blocks.0.0.weight")[1], hidden)
    has_shared_head = "lm_head.weight" in table
    rows = _shape(table, "lm_head.weight" if has_shared_head else "heads.0.weight")[0]
    draft_vocab = _whole(config, "truncated_vocab_size", target.vocab_size)
    _check_fit("a vocabulary of", rows, draft_vocab if rows == draft_vocab else target.vocab_size)
    has_bias = "blocks.0.0.bias" in table
    medusa = MedusaConfig(num_heads, num_layers, rows, draft_vocab, has_bias, has_shared_head)
    return HeadFile(folder, "medusa", medusa, table, target.vocab_size, mapped)


class _Naming(NamedTuple):
    """Names of MTP layers: `pattern` gives the number of a layer and the rest of the name.

    `parts` are such rests for _PARTS, without ".weight"; others are those of a layer of the model. `unused`
    are copies of the embedding and head of the model.
    """

    pattern: str
    parts: tuple[str, ...]
    hidden_first: bool = False
    unused: tuple[str, ...] = ()


_PARTS = ("embed_norm", "hidden_norm", "fc", "norm")
_MIMO = _Naming(
    r"(?:model\.)?mtp_layers\.(\d{1,6})\.(.*)",
    ("token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
    hidden_first=True,
)
_TRANSFORMERS = _Naming(
    r"mtp\.layers\.(\d{1,6})\.(?:mtp_block\.)?(.*)", ("enorm", "hnorm", "eh_proj", "post_norm")
)
_QWEN = _Naming(  # all layers share the parts
    r"mtp\.(?:layers\.(\d{1,6})\.)?(.*)", ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm")
)
_DEEPSEEK = _Naming(  # layers behind those of the model
    r"model\.layers\.(\d{1,6})\.(.*)",
    ("enorm", "hnorm", "eh_proj", "shared_head.norm"),
    unused=("shared_head.head.weight", "embed_tokens.weight"),
)
_MTP_FAMILIES = ("llama", "mimo", "mistral", "qwen2", "qwen3", "qwen3_moe")  # whose layers are all alike


def _open_mtp(folder: Path, config: Mapping[str, Any], target: Target, *, hidden_first: bool) -> HeadFile:
    """Open the MTP layers of a target's configuration; with `hidden_first` MiMo's names mean its order."""
    depth = _whole(config, "num_hidden_layers", 0)
    stored, tensors = read_table(weight_files(folder)), dict[str, StoredTensor]()
    for naming in (_MIMO, _TRANSFORMERS, _QWEN, _DEEPSEEK):
        tensors = _mtp_tensors(stored, naming, depth if naming is _DEEPSEEK else 0)
        if "mtp.0.fc.weight" in tensors:
            break
    else:
        raise UsageError(
            f"{folder} has no layers for multi-token prediction: there are no weights "
            f"model.mtp_layers.0.input_proj, mtp.layers.0.eh_proj, mtp.fc or model.layers.{depth}.eh_proj.",
            hint="Conversions to other formats often leave them out",
        )
    if (family := config.get("model_type")) not in _MTP_FAMILIES:
        raise Unsupported(f"layers of {shortened(str(family), 40)} are read from no file here")
    if config.get("chain_hidden_post_norm") is not None:
        raise Unsupported("it has 'chain_hidden_post_norm'")
    spec = read_spec(config)
    _check_fit("states as wide as", spec.hidden, target.hidden)
    number = len([*takewhile(lambda layer: f"mtp.{layer}.fc.weight" in tensors, count())])
    has_experts = f"model.layers.0.{spec.names.router}.weight" in tensors
    spec = replace(
        spec,
        num_layers=number,
        layer_ropes=spec.layer_ropes[-1:] * number,
        windows=spec.windows[-1:] * number,
        expert_layers=frozenset(range(number)) if has_experts else frozenset(),
    )
    first = _flag(config, "mtp_hidden_states_first")
    mtp = MtpConfig(spec, naming.hidden_first and hidden_first if first is None else first)
    return HeadFile(folder, "mtp", mtp, tensors, target.vocab_size)


def _mtp_tensors(table: Mapping[str, StoredTensor], naming: _Naming, first: int) -> dict[str, StoredTensor]:
    """Return the tensors of MTP layers, whose numbers begin with `first`, by canonical names."""
    parts = {f"{old}.weight": new for old, new in zip(naming.parts, _PARTS, strict=True)}
    tensors = {}
    for name, stored in table.items():
        match = re.fullmatch(naming.pattern, name)
        if match is None or _UNUSED.fullmatch(name) or match[2] in naming.unused:
            continue
        layer, rest = int(match[1] or 0) - first, match[2]
        new = f"mtp.{layer}.{parts[rest]}.weight" if rest in parts else f"model.layers.{layer}.{rest}"
        if layer >= 0:
            tensors[new] = replace(stored, name=new)
    if naming is _QWEN:
        numbers = {name.split(".")[2] for name in tensors if name.startswith("model.layers.")}
        shared = [f"{part}.weight" for part in _PARTS if f"mtp.0.{part}.weight" in tensors]
        for number, part in product(numbers, shared):
            new = f"mtp.{number}.{part}"
            tensors[new] = replace(tensors[f"mtp.0.{part}"], name=new)
    return tensors


def _shape(table: Mapping[str, StoredTensor], name: str, sides: int = 2) -> tuple[int, ...]:
    """Return the shape of a tensor. Raises ModelError if it is absent or has other than so many sides."""
    if name not in table:
        raise ModelError(
            f"It lacks the weights {name}.",
            hint="Is config.json that of another head, or is the download incomplete?",
        )
    if len(shape := table[name].shape) != sides:
        raise ModelError(f"The weights {name} have the shape {list(shape)}.")
    return shape


def _check_keys(config: Mapping[str, Any], known: frozenset[str] | set[str]) -> None:
    if unknown := sorted(key for key in config.keys() - known if config[key] is not None):
        raise Unsupported(f"config.json has {shortened(repr(unknown[0]), 60)}")


def _check_fit(what: str, held: int, wanted: int) -> None:
    if held != wanted:
        raise ModelError(f"The draft head is made for {what} {held}, but here it is {wanted}.", hint=_FIT)


def _whole(config: Mapping[str, Any], key: str, default: int, most: int = 2**31 - 1) -> int:
    """Return a number of the configuration. Raises ModelError for another value."""
    value = default if config.get(key) is None else config[key]
    if value is not default and (type(value) is not int or not 0 < value <= most):
        shown = shortened(repr(value), 60)
        raise ModelError(f"config.json: {key} is {shown}, but has to be a whole number from 1 to {most}.")
    return int(value)


def _flag(config: Mapping[str, Any], key: str) -> bool | None:
    """Return a switch of the configuration, None if it is left out. Raises ModelError for another value."""
    value = config.get(key)
    if not isinstance(value, bool | None):
        raise ModelError(f"config.json: {key} is {shortened(repr(value), 60)}, but has to be true or false.")
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _shown(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))
