"""The tokenizer class that transformers selects for a model, and how that class changes tokenizer.json.

`TokenizersBackend` uses tokenizer.json as it is. Other classes take its vocabulary, merges and
post-processor, and build the normalizer, pre-tokenizer, decoder and model options themselves. The tables are
those of transformers 5.17 to 5.24; a model type about which these versions disagree is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors

from gencli.models.files.model_card import transformers_version

__all__ = ["AS_IS", "DEFAULTS", "REGISTERED", "NeedsTransformers", "build_parts", "class_of"]

_KNOWN = (5, 17), (5, 24)  # the first and the last version that these tables describe
AS_IS = "TokenizersBackend"
_AS_IS = (AS_IS, "PreTrainedTokenizer")  # names without "Fast"
_TYPES: dict[str | None, str] = {
    AS_IS: "olmo2 olmo3 granite granitemoe granitemoehybrid granitemoeshared glm glm4 glm4_moe stablelm "
    "persimmon gpt_bigcode mistral ministral ministral3 mistral3 mixtral phi3 phimoe nemotron jamba",
    "Qwen2Tokenizer": "qwen2 qwen2_moe qwen3 qwen3_moe qwen3_next",
    "Qwen3_5Tokenizer": "qwen3_5 qwen3_5_text qwen3_5_moe",
    "GemmaTokenizer": "gemma gemma2 gemma3 gemma3_text recurrent_gemma",
    "GPT2Tokenizer": "gpt2 gptj gpt_neo phi starcoder2 opt",
    "GPTNeoXTokenizer": "gpt_neox olmo olmoe mamba mamba2 falcon_mamba",
    None: "llama smollm3 gpt_oss falcon falcon_h1 exaone4 lfm2 seed_oss helium apertus arcee",
}
# The class that transformers registers for a model type; None: the declared class is used.
REGISTERED = {model_type: name for name, types in _TYPES.items() for model_type in types.split()}
# Model types for which transformers uses the registered class whatever the files declare; some only since
# 5.18.
_ALWAYS_REGISTERED = frozenset({"qwen2"})
_VERSIONS_DIFFER = frozenset({"qwen3_5", "qwen3_5_text", "qwen3_5_moe"})

# Special tokens that a class defines if tokenizer_config.json does not.
_END = "<|endoftext|>"
DEFAULTS: dict[str, dict[str, str]] = {
    AS_IS: {},
    "LlamaTokenizer": {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"},
    "GemmaTokenizer": {
        "unk_token": "<unk>",
        "bos_token": "<bos>",
        "eos_token": "<eos>",
        "pad_token": "<pad>",
        "mask_token": "<mask>",
    },
    "Qwen2Tokenizer": {"unk_token": _END, "eos_token": _END, "pad_token": _END},
    "Qwen3_5Tokenizer": {"unk_token": _END, "eos_token": _END, "pad_token": _END},
    "GPT2Tokenizer": {"unk_token": _END, "bos_token": _END, "eos_token": _END},
    "GPTNeoXTokenizer": {
        "unk_token": _END,
        "bos_token": _END,
        "eos_token": _END,
        "pad_token": "<|padding|>",
    },
}
_QWEN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?LETTERS+|\p{N}"
    r"| ?[^\s\p{L}MARKS\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {
    "Qwen2Tokenizer": _QWEN.replace("LETTERS", r"\p{L}").replace("MARKS", ""),
    "Qwen3_5Tokenizer": _QWEN.replace("LETTERS", r"[\p{L}\p{M}]").replace("MARKS", r"\p{M}"),
}


class NeedsTransformers(Exception):
    """A tokenizer may differ without transformers; the message says why."""


def class_of(model_type: str | None, declared: str) -> str:
    """Return the class that AutoTokenizer selects: AS_IS or a key of DEFAULTS.

    `model_type`: from config.json, None without this file. `declared`: `tokenizer_class`. Raises
    NeedsTransformers for other classes and unknown model types.
    """
    if model_type is not None and model_type not in REGISTERED:
        raise NeedsTransformers(f"the tokenizers of the model type {model_type[:60]!r} are not known here")
    registered = REGISTERED[model_type] if model_type is not None else None
    bare = declared.removesuffix("Fast")
    if registered == AS_IS and "Mistral" not in bare:
        return AS_IS
    if registered not in (None, bare):
        if model_type in _ALWAYS_REGISTERED:
            bare = str(registered)
        elif bare not in _AS_IS or model_type in _VERSIONS_DIFFER:
            raise NeedsTransformers(f"models of the type {model_type!r} rarely have a {declared[:60]!r}")
    if bare in _AS_IS:
        return AS_IS
    if bare not in DEFAULTS:
        raise NeedsTransformers(f"the tokenizer class {declared[:60]!r} is not known here")
    return bare


def build_parts(name: str, backend: Tokenizer, config: Mapping[str, Any], unk: str | None) -> None:
    """Set in `backend`, which was read from tokenizer.json, the parts that the class `name` builds.

    `config` is tokenizer_config.json, `unk` the unknown token. Raises NeedsTransformers for a model that the
    class does not support; also for parts that differ from the file's, if the installed transformers is not
    among the versions known to build these parts.
    """
    if name == AS_IS:
        return
    model = backend.model
    if type(model).__name__ != "BPE" or model.continuing_subword_prefix or model.end_of_word_suffix:
        raise NeedsTransformers(f"{name} has no model like that of tokenizer.json")
    parts = _parts(name, config)
    changed = [kind for kind, part in parts.items() if _spec(getattr(backend, kind)) != _spec(part)]
    options = _options(name, unk)
    changed += ["model"] if any(getattr(model, key) != value for key, value in options.items()) else []
    if name == "GPTNeoXTokenizer" and _changes_ids(backend.post_processor):
        parts["post_processor"] = processors.TemplateProcessing(single="$A", pair="$A:0 $B:1")
        changed.append("post_processor")
    if changed and not _is_known():
        raise NeedsTransformers(f"{name} may replace the {changed[0].replace('_', '-')} of tokenizer.json")
    for kind, part in parts.items():
        if kind in changed:
            setattr(backend, kind, part)
    for key, value in options.items():
        setattr(model, key, value)


def _is_known() -> bool:
    """Return whether the installed transformers is a version that these tables describe."""
    found = transformers_version()
    return found is not None and _KNOWN[0] <= found <= _KNOWN[1]


def _options(name: str, unk: str | None) -> dict[str, Any]:
    """Return the model options that the class sets."""
    fallback = name in ("LlamaTokenizer", "GemmaTokenizer")
    return {
        "unk_token": str(unk) if name == "GemmaTokenizer" else None,
        "fuse_unk": fallback,
        "byte_fallback": fallback,
        "ignore_merges": False,
        "dropout": None,
    }


def _parts(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    space = config.get("add_prefix_space")
    if name == "LlamaTokenizer":
        space = space is None or space
        scheme = ("always" if config.get("legacy") else "first") if space else "never"
        strip = [decoders.Strip(content=" ", left=1)] if space else []
        return {
            "normalizer": None,
            "pre_tokenizer": pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False),
            "decoder": decoders.Sequence([*_pieces(), *strip]),
        }
    if name == "GemmaTokenizer":
        return {
            "normalizer": normalizers.Replace(" ", "▁"),
            "pre_tokenizer": pre_tokenizers.Split(" ", "merged_with_previous"),
            "decoder": decoders.Sequence(_pieces()),
        }
    space = bool(space) if name in _SPLITS else config.get("add_prefix_space", False)
    bytes_of: Any = pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=name not in _SPLITS)
    if name in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[name]), "isolated")
        bytes_of = pre_tokenizers.Sequence([split, bytes_of])
    normalizer = None if name == "GPT2Tokenizer" else normalizers.NFC()
    return {"normalizer": normalizer, "pre_tokenizer": bytes_of, "decoder": decoders.ByteLevel()}


def _pieces() -> list[Any]:
    return [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]


def _spec(part: Any) -> Any:
    """Return a part as JSON, without options that change neither ids nor text."""
    if isinstance(part, decoders.ByteLevel):
        return "ByteLevel"
    return _stripped(json.loads(part.__getstate__())) if part is not None else None


def _stripped(spec: Any) -> Any:
    if isinstance(spec, list):
        return [_stripped(item) for item in spec]
    if not isinstance(spec, dict):
        return spec
    return {key: _stripped(value) for key, value in spec.items() if key != "trim_offsets"}


def _changes_ids(processor: Any) -> bool:
    """Return whether a post-processor may change the ids of a text."""
    match _spec(processor):
        case None | {"type": "ByteLevel"} | {"type": "TemplateProcessing", "single": [{"Sequence": _}]}:
            return False
    return True
