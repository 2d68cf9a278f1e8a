"""Facts of a model without loading weights: sizes and formats from config.json and the headers of
safetensors files, its chat template, and the ids that end a text.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from gencli.errors import ModelError
from gencli.models.decoder.families import DecoderSpec, spec_if_any
from gencli.models.files.gguf_header import is_gguf, read_gguf_head
from gencli.models.files.gguf_heads import HEADS, head_config
from gencli.models.files.gguf_metadata import gguf_config, read_vocabulary
from gencli.models.files.local_models import find_local
from gencli.models.files.model_files import (
    BLOCKS,
    MIN_STORED,
    SCALES,
    Format,
    StoredTensor,
    read_object,
    read_object_if_any,
    read_table,
    read_text,
)

# Configuration keys of the context length in tokens, the most common first.
STEP = 256  # tokens; the room of a KV lane is a multiple of it
CONTEXT_KEYS = tuple(
    "max_position_embeddings n_positions max_sequence_length max_seq_len seq_length context_length".split()
)
# Values of layer_types for layers with a plain KV cache, and configuration keys of recurrent layers.
_PLAIN_LAYERS = {"full_attention", "sliding_attention", "attention", "global", "local"}
_STATE_KEYS = tuple(
    "state_size ssm_state_size mamba_d_state linear_conv_kernel_dim lru_width conv_L_cache".split()
)
# Decoders of transformers whose older code takes no custom attention mask or no position ids.
ALONE_KINDS = frozenset(
    """
    bart big_bird bigbird_pegasus biogpt blenderbot blenderbot-small bloom falcon gpt_neo
    gpt_neox_japanese marian mbart mpt mvp pegasus plbart stablelm trocr whisper xglm
    """.split()
)
_ALONE_BEFORE = {"codegen": (5, 24), "gptj": (5, 24)}  # kinds whose code is newer from this version on
_BITS = {"int8": 8.5, "int4": 5}  # a weight; each 32 weights have 16 bits of scales, those of four bits 32
_CODES = ("I8", "U8")  # number formats of quantized weights in files
_STATE_KINDS = ("mamba", "rwkv", "xlstm", "recurrent_gemma")


@dataclass(frozen=True, slots=True)
class Weights:
    """Size of the weight files in bytes, number of parameters, and their most common number format.

    `codes` of the parameters are stored in MXFP4.
    """

    bytes: int = 0
    parameters: int = 0
    stored: str = ""
    codes: int = 0


@dataclass(frozen=True, slots=True)
class Card:
    """Metadata of one model.

    `lanes` is "shared" (requests share forward passes) or "own" (one cache and one pass per request).
    `layers` is None if the configuration does not say. `kv_values` is the number of values that a token adds
    to the KV cache, None for models with other state. `spec` is gencli's own decoder of the model, None if
    only transformers runs it.
    """

    folder: Path
    model_type: str
    architecture: str
    context: int | None
    vocabulary: int | None
    has_chat_template: bool
    weights: Weights
    lanes: str
    can_rollback: bool
    layers: int | None
    kv_values: int | None
    spec: DecoderSpec | None


def read_card(folder: Path) -> Card:
    """Return the card of a model folder or a GGUF file. Raises ModelError if it is neither."""
    config = read_config(folder)
    return card_of(folder, config, read_weights(folder), spec_if_any(config))


def card_of(folder: Path, config: Mapping[str, Any], weights: Weights, spec: DecoderSpec | None) -> Card:
    """Return the card of a model whose files were read. Raises ModelError for a damaged configuration."""
    try:
        text = text_part(config)
        is_plain, kind = _is_plain(text), config.get("model_type")
        since = _ALONE_BEFORE.get(str(kind))
        is_alone = kind in ALONE_KINDS or (since is not None and (transformers_version() or since) < since)
        sizes = (text.get(key) for key in CONTEXT_KEYS)
        return Card(
            folder=folder,
            model_type=str(config.get("model_type", "?")),
            architecture=", ".join(map(str, config.get("architectures") or ["?"])),
            context=next((size for size in sizes if isinstance(size, int) and size > 0), None),
            vocabulary=text.get("vocab_size"),
            has_chat_template=has_template(folder),
            weights=weights,
            lanes="shared" if is_plain and not is_alone else "own",
            can_rollback=is_plain and kind != "rwkv",  # its state is in no cache
            layers=text.get("num_hidden_layers") or text.get("n_layer"),
            kv_values=_kv_values(text) if is_plain else None,
            spec=spec,
        )
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ModelError(f"{folder / 'config.json'} has a value of the wrong kind: {error}.") from None


def text_part(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the text model's part of a configuration: all of it, or one key of a multimodal model."""
    parts = (config.get(key) for key in ("text_config", "llm_config"))
    return next((part for part in parts if isinstance(part, dict)), config)


def read_weights(folder: Path) -> Weights:
    """Return the sums over the folder's safetensors files, or those of a GGUF file.

    Raises ModelError for a damaged file.
    """
    if is_gguf(folder):
        return weights_of(read_gguf_head(folder).files, {})
    files = sorted(folder.glob("*.safetensors"))
    return weights_of(files, read_table(files))


def weights_of(files: Sequence[Path], table: Mapping[str, StoredTensor]) -> Weights:
    """Return the sums over the tensors of `table` in safetensors files, or a GGUF file with its parts."""
    formats: Counter[str] = Counter()
    for stored in table.values():
        if stored.name.endswith(BLOCKS) and stored.name.removesuffix(BLOCKS) + SCALES in table:
            formats["MXFP4"] += 2 * stored.count  # two codes a byte
        elif stored.name.removesuffix(SCALES) + BLOCKS not in table:
            formats[stored.format] += stored.count
    if files and is_gguf(files[0]):
        for held in read_gguf_head(files[0]).tensors.values():
            formats[held.kind.name] += math.prod(held.shape)
    most_common = formats.most_common(1)[0][0] if formats else ""
    return Weights(
        sum(file.stat().st_size for file in files), sum(formats.values()), most_common, formats["MXFP4"]
    )


def has_codes(card: Card) -> bool:
    """Return whether the files hold quantized weights."""
    return card.weights.stored in _CODES


def whole_bytes(card: Card, number_bytes: int, quantize: Format = "none") -> int:
    """Return the bytes of all weights of a model, each held once, with `number_bytes` bytes a number."""
    if has_codes(card):
        return card.weights.bytes
    if quantize in _BITS:
        return int(card.weights.parameters * _BITS[quantize] / 8)
    return card.weights.parameters * number_bytes


def held_bytes(
    card: Card, number_bytes: int, device: str, *, is_packed: bool, is_head_wide: bool = True
) -> int:
    """Return the bytes of all weights in numbers of `number_bytes` bytes as what runs the model holds them.

    gencli's own decoder leaves large embeddings in their file on a CPU. A packed vocabulary projection that
    is tied to embeddings in memory is a second copy of them; with `is_head_wide` it has 32 bits in any case.
    """
    whole, spec = whole_bytes(card, number_bytes), card.spec
    if spec is None or has_codes(card) or not whole:
        return whole
    embeddings = spec.vocab_size * spec.hidden * number_bytes
    head = embeddings * 4 // number_bytes if is_head_wide else embeddings
    if spec.is_tied and head == embeddings and not is_packed:
        return whole
    held = 0 if device == "cpu" and embeddings >= MIN_STORED else embeddings
    return whole - embeddings * (1 if spec.is_tied else 2) + head + held


def kv_bytes(card: Card, *, batch: int, context: int, number_bytes: int) -> int | None:
    """Return the bytes of the KV cache of `batch` lanes with room for `context` tokens; None if unknown."""
    room = -(-context // STEP) * STEP
    return None if card.kv_values is None else card.kv_values * number_bytes * batch * room


def _is_plain(text: Mapping[str, Any]) -> bool:
    """Return whether every layer caches keys and values, and nothing else."""
    kinds = set(text.get("layer_types") or text.get("layers_block_type") or ())
    is_state = any(text.get(key) is not None for key in _STATE_KEYS)
    is_named = str(text.get("model_type", "")).startswith(_STATE_KINDS)
    return kinds <= _PLAIN_LAYERS and not is_state and not is_named


def _kv_values(text: Mapping[str, Any]) -> int | None:
    """Return the values a token adds to the KV cache: keys and values of all KV heads in all layers."""
    layers = text.get("num_hidden_layers") or text.get("n_layer")
    heads = text.get("num_attention_heads") or text.get("n_head")
    width = text.get("hidden_size") or text.get("n_embd")
    if not (isinstance(layers, int) and isinstance(heads, int) and isinstance(width, int)):
        return None
    if "kv_lora_rank" in text:  # multi-head latent attention; keys and values are cached uncompressed
        each = text.get("qk_nope_head_dim", 0) + text.get("qk_rope_head_dim", 0) + text.get("v_head_dim", 0)
        return layers * heads * int(each)
    groups = text.get("num_key_value_heads") or (1 if text.get("multi_query") else heads)
    return 2 * layers * int(groups) * int(text.get("head_dim") or width // heads)


def read_config(model: Path) -> dict[str, Any]:
    """Return the configuration of a folder or a GGUF file. Raises ModelError if there is none."""
    if not is_gguf(model):
        return read_object(model / "config.json")
    head = read_gguf_head(model)
    return head_config(head) if head.text("general.architecture") in HEADS else gguf_config(head)


def read_config_if_any(model: Path) -> dict[str, Any]:
    """Return the configuration, or {} on any fault, which loading the model will report."""
    try:
        return read_config(model)
    except ModelError:
        return {}


def has_template(folder: Path) -> bool:
    """Return whether a model's folder or GGUF file brings a chat template."""
    if is_gguf(folder):
        return bool(read_gguf_head(folder).chat_template)
    return _template(folder, read_object_if_any(folder / "tokenizer_config.json")) is not None


def declared_template(name: str) -> tuple[str | None, frozenset[str]]:
    """Return the chat template of a local model (None without one), and the texts of its special tokens."""
    folder = find_local(name)
    if folder is None:
        return None, frozenset()
    if is_gguf(folder):
        head = read_gguf_head(folder)
        return _for_tools(head.chat_template), read_vocabulary(head).special
    config = read_object_if_any(folder / "tokenizer_config.json")
    decoded = config.get("added_tokens_decoder")
    added = read_object_if_any(folder / "tokenizer.json").get("added_tokens")
    tokens = [
        *(added if isinstance(added, list) else ()),
        *(decoded.values() if isinstance(decoded, dict) else ()),
    ]
    special = [
        str(token.get("content")) for token in tokens if isinstance(token, dict) and token.get("special")
    ]
    return _template(folder, config), frozenset(special)


def _for_tools(templates: Any) -> Any:
    """Return the template of a conversation with tools, if there are several."""
    if not isinstance(templates, dict):
        return templates
    return templates.get("tool_use") or templates.get("default")


def _template(folder: Path, config: dict[str, Any]) -> str | None:
    if (folder / "additional_chat_templates" / "tool_use.jinja").is_file():
        return read_text(folder / "additional_chat_templates" / "tool_use.jinja")
    if (folder / "chat_template.jinja").is_file():
        return read_text(folder / "chat_template.jinja")
    alone = read_object_if_any(folder / "chat_template.json")
    template = alone.get("chat_template") or config.get("chat_template")
    if isinstance(template, list):  # several by name
        named = {
            str(entry.get("name")): entry.get("template") for entry in template if isinstance(entry, dict)
        }
        template = _for_tools(named)
    return template if isinstance(template, str) else None


def declared_ends(folder: Path) -> tuple[int, ...]:
    """Return the end-of-text ids in generation_config.json; without that file, those in config.json.

    A GGUF file names them with its tokens.
    """
    if is_gguf(folder):
        return tuple(read_vocabulary(read_gguf_head(folder)).ends)
    generation = read_object_if_any(folder / "generation_config.json")
    config = generation or text_part(read_config_if_any(folder))
    ends = config.get("eos_token_id")
    return (ends,) if isinstance(ends, int) else tuple(ends or ())


def transformers_version() -> tuple[int, int] | None:
    """Return major and minor version, without importing transformers; None if it has none."""
    try:
        major, minor, *_ = version("transformers").split(".")
        return int(major), int(minor)
    except (PackageNotFoundError, ValueError):
        return None
