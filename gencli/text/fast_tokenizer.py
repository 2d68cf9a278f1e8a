"""Loads the tokenizer of a model folder without transformers, if the result is provably the same; what is
not covered raises NeedsTransformers. The steps are those of AutoTokenizer.from_pretrained (transformers
5.17 to 5.24) for a local folder. `TokenizersBackend` uses tokenizer.json as it is; other classes take
its vocabulary, merges and post-processor, and build the rest themselves.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers, processors

from gencli.errors import is_panic
from gencli.models.files.model_card import transformers_version
from gencli.models.files.model_files import read_object

_Token = str | AddedToken
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_TOKENS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
_TOKEN_FILES = ("added_tokens.json", "special_tokens_map.json")
# Keys of tokenizer_config.json that change no ids, or that are read here.
_KEYS = frozenset(
    """
    add_bos_token add_eos_token add_prefix_space added_tokens_decoder auto_map backend chat_template
    clean_up_tokenization_spaces errors is_local legacy local_files_only max_length model_input_names
    model_max_length name_or_path pad_to_multiple_of pad_token_type_id padding_side processor_class
    response_schema sp_model_kwargs spaces_between_special_tokens special_tokens_map_file
    split_special_tokens stride tokenizer_class tokenizer_file trim_offsets truncation_side
    truncation_strategy use_default_system_prompt use_fast vocab_size
    """.split()
) | {*_NAMED, *_TOKENS}
# Organisations whose models get their tokenizer class by name.
_BY_NAME = ("deepseek-ai/", "allenai/", "google/", "naver-clova-ix/", "salesforce/", "stepfun-ai/")


def load_fast(folder: Path, *, trust_remote_code: bool = False) -> FastTokenizer | str:
    """Return the tokenizer of a folder, or the reason, in one sentence, why transformers has to load it.

    Damaged files are such a reason too, because the error of transformers is reported.
    """
    try:
        if trust_remote_code:
            raise NeedsTransformers("code of the model may run")
        return _load(folder)
    except NeedsTransformers as reason:
        return f"{reason}."
    except BaseException as error:  # bare Exception of the back end, and its panics
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        return f"a file could not be read: {error}."


def _load(folder: Path) -> FastTokenizer:
    for name in ("tokenizer.json", "tokenizer_config.json"):
        if not (folder / name).is_file():
            raise NeedsTransformers(f"there is no {name}")
    if (folder / "tekken.json").exists():
        raise NeedsTransformers("tekken.json may be taken in place of tokenizer.json")
    config = read_object(folder / "tokenizer_config.json")
    _check_keys(config)
    model = read_object(folder / "config.json") if (folder / "config.json").exists() else None
    if model is not None and (not isinstance(model.get("model_type"), str) or "model_name" in model):
        raise NeedsTransformers("config.json names no model type, or a model name too")
    name = class_of(None if model is None else model["model_type"], config["tokenizer_class"])
    paths = str(folder), str((model or {}).get("_name_or_path"))
    if name != AS_IS and any(path.lower().startswith(_BY_NAME) for path in paths):
        raise NeedsTransformers("transformers chooses the class by the name of the model")
    if name == "LlamaTokenizer" and b'"ByteLevel"' in (folder / "tokenizer.json").read_bytes():
        raise NeedsTransformers("a LlamaTokenizer with ByteLevel depends on the version of transformers")
    template = _chat_template(folder, config)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens: dict[int, AddedToken] = backend.get_added_tokens_decoder()
    added = tokens  # by id, those that transformers adds to those of tokenizer.json
    if "added_tokens_decoder" in config:
        declared = config["added_tokens_decoder"].items()
        added = {int(token_id): AddedToken(**token) for token_id, token in declared}
    elif other := next((file for file in _TOKEN_FILES if (folder / file).exists()), ""):
        raise NeedsTransformers(f"{other} is read, because there is no added_tokens_decoder")
    if name != AS_IS:  # a class that rebuilds its model has to give the tokens these ids
        first, second = ({k: token.__getstate__() for k, token in each.items()} for each in (added, tokens))
        if first != second:
            raise NeedsTransformers("tokenizer_config.json has other added tokens than tokenizer.json")
        size = backend.get_vocab_size(with_added_tokens=False)
        new = {token_id for token_id in tokens if backend.model.id_to_token(token_id) is None}
        if new != set(range(size, size + len(new))) or max(tokens.keys() - new, default=-1) >= size:
            raise NeedsTransformers("the ids of the added tokens do not follow those of the vocabulary")
    named = _named(config, added, name)
    if backend.padding is not None and config.get("pad_token") is None:
        raise NeedsTransformers("the padding of tokenizer.json names a pad token")
    unk = named.get("unk_token")
    build_parts(name, backend, config, None if unk is None else str(unk))
    extra = list(_extra(config, backend))
    _add_tokens(backend, added, named, extra)
    fast = FastTokenizer(backend, {key: str(token) for key, token in named.items()}, extra, template)
    if name == "Qwen2Tokenizer":
        backend.add_tokens([AddedToken(token, special=True) for token in fast.all_special_tokens])
    backend.encode_special_tokens = config.get("split_special_tokens", False)
    backend.no_truncation()  # transformers turns both off for each text
    backend.no_padding()
    return fast


def _check_keys(config: Mapping[str, Any]) -> None:
    """Raise NeedsTransformers for keys and values of tokenizer_config.json that are not handled here."""
    if config.get("auto_map"):
        raise NeedsTransformers("it has code of its own")
    for key, value in config.items():
        is_unset = key in ("vocab_file", "merges_file") and value is None
        if key not in _KEYS and not is_unset and not (key.endswith("_token") and isinstance(value, str)):
            raise NeedsTransformers(f"the key {key[:60]!r} of tokenizer_config.json is not known here")
    if not isinstance(config.get("tokenizer_class"), str):
        raise NeedsTransformers("tokenizer_config.json names no tokenizer_class")
    possible: tuple[tuple[str, tuple[Any, ...]], ...] = (
        ("padding_side", ("left", "right")),
        ("truncation_side", ("left", "right")),
        ("split_special_tokens", (False, True)),
        ("add_prefix_space", (None, False, True)),
    )
    for key, values in possible:
        if config.get(key, values[0]) not in values:
            raise _odd(key)


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | dict[str, str] | None:
    """Return the chat template, or templates by name. Template files override the configuration."""
    single = folder / "chat_template.jinja"
    files = {"default": single} if single.is_file() else {}
    more = (folder / "additional_chat_templates").glob("*.jinja")
    files |= {path.name.removesuffix(".jinja"): path for path in more if path.is_file()}
    templates: Any = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    if templates.keys() == {"default"}:
        return str(templates["default"])
    templates = templates or config.get("chat_template")
    if isinstance(templates, list):
        templates = {template["name"]: template["template"] for template in templates}
    texts = templates.values() if isinstance(templates, dict) else [templates or ""]
    if not all(isinstance(text, str) for text in texts):
        raise _odd("chat_template")
    return cast("str | dict[str, str] | None", templates)


def _named(config: Mapping[str, Any], added: Mapping[int, AddedToken], name: str) -> dict[str, _Token]:
    """Return the named special tokens; names used by the model alone come last."""
    by_text = {token.content: token for token in added.values()}
    named: dict[str, _Token] = {}
    for key in _NAMED:
        if key in config and config[key] is not None:
            token = _token(config[key], key)
            named[key] = by_text.get(str(token), token)
        elif key not in config and key in DEFAULTS[name]:
            named[key] = DEFAULTS[name][key]
    model_tokens = {
        key: value for key, value in config.items() if key.endswith("_token") and key not in _KEYS
    }
    if isinstance(config.get("extra_special_tokens"), dict):
        model_tokens |= config["extra_special_tokens"]
    model_tokens = model_tokens or config.get("model_specific_special_tokens") or {}
    return named | {key: _token(value, key) for key, value in model_tokens.items()}


def _extra(config: Mapping[str, Any], backend: Tokenizer) -> Iterator[str]:
    """Yield the special tokens that have no name."""
    if all(config.get(key) for key in _TOKENS[:2]):
        raise NeedsTransformers("it has both additional_special_tokens and extra_special_tokens")
    key = "additional_special_tokens" if config.get("additional_special_tokens") else "extra_special_tokens"
    tokens = config.get(key) or []
    if key == "extra_special_tokens" and isinstance(tokens, dict):
        return  # these tokens have names
    if not isinstance(tokens, list) or not all(isinstance(token, str) and token for token in tokens):
        raise _odd(key)
    if key != "extra_special_tokens" and "extra_special_tokens" in config:  # not read by transformers 5.17
        special = {t.content for t in backend.get_added_tokens_decoder().values() if t.special}
        if not special.issuperset(tokens):
            raise NeedsTransformers("additional_special_tokens has tokens that are not special elsewhere")
    yield from tokens


def _token(value: Any, key: str) -> _Token:
    """Return a special token from its form in tokenizer_config.json: a text or an AddedToken object."""
    if isinstance(value, str) and value:
        return value
    if isinstance(value, dict) and value.get("__type") == "AddedToken" and value.get("content"):
        return AddedToken(**{name: part for name, part in value.items() if name != "__type"})
    raise _odd(key)


def _odd(key: str) -> NeedsTransformers:
    return NeedsTransformers(f"{key} of tokenizer_config.json is not of its kind")


def _add_tokens(
    backend: Tokenizer, added: Mapping[int, AddedToken], named: Mapping[str, _Token], extra: list[str]
) -> None:
    """Add the tokens of the configuration to those of tokenizer.json, special tokens as special."""
    tokens: list[_Token] = [added[token_id] for token_id in sorted(added)]
    texts = {token.content for token in (*backend.get_added_tokens_decoder().values(), *added.values())}
    for token in (*named.values(), *extra):
        if str(token) not in texts and token not in tokens:
            tokens.append(token)
    names = {str(token) for token in named.values()}
    special = [AddedToken(token, special=True) if isinstance(token, str) else token for token in tokens]
    for token in special:
        token.special = token.special or token.content in names
    if special:
        backend.add_tokens(special)


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
    "GPTNeoXTokenizer": {"unk_token": _END, "bos_token": _END, "eos_token": _END, "pad_token": "<|padding|>"},
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
    has_bytes = name in ("LlamaTokenizer", "GemmaTokenizer")  # for unknown characters
    options = {
        "unk_token": str(unk) if name == "GemmaTokenizer" else None,
        "fuse_unk": has_bytes,
        "byte_fallback": has_bytes,
        "ignore_merges": False,
        "dropout": None,
    }
    changed += ["model"] if any(getattr(model, key) != value for key, value in options.items()) else []
    if name == "GPTNeoXTokenizer":
        match _spec(backend.post_processor):
            case None | {"type": "ByteLevel"} | {"type": "TemplateProcessing", "single": [{"Sequence": _}]}:
                pass  # it changes no ids
            case _:
                parts["post_processor"] = processors.TemplateProcessing(single="$A", pair="$A:0 $B:1")
                changed.append("post_processor")
    version = transformers_version()
    if changed and not (version is not None and _KNOWN[0] <= version <= _KNOWN[1]):
        raise NeedsTransformers(f"{name} may replace the {changed[0].replace('_', '-')} of tokenizer.json")
    for kind, part in parts.items():
        if kind in changed:
            setattr(backend, kind, part)
    for key, value in options.items():
        setattr(model, key, value)


def _parts(name: str, config: Mapping[str, Any]) -> dict[str, Any]:
    space = config.get("add_prefix_space")
    pieces: list[Any] = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if name == "LlamaTokenizer":
        space = space is None or space
        scheme = ("always" if config.get("legacy") else "first") if space else "never"
        strip = [decoders.Strip(content=" ", left=1)] if space else []
        return {
            "normalizer": None,
            "pre_tokenizer": pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False),
            "decoder": decoders.Sequence([*pieces, *strip]),
        }
    if name == "GemmaTokenizer":
        return {
            "normalizer": normalizers.Replace(" ", "▁"),
            "pre_tokenizer": pre_tokenizers.Split(" ", "merged_with_previous"),
            "decoder": decoders.Sequence(pieces),
        }
    space = bool(space) if name in _SPLITS else config.get("add_prefix_space", False)
    bytes_of: Any = pre_tokenizers.ByteLevel(add_prefix_space=space, use_regex=name not in _SPLITS)
    if name in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[name]), "isolated")
        bytes_of = pre_tokenizers.Sequence([split, bytes_of])
    normalizer = None if name == "GPT2Tokenizer" else normalizers.NFC()
    return {"normalizer": normalizer, "pre_tokenizer": bytes_of, "decoder": decoders.ByteLevel()}


def _spec(part: Any) -> Any:
    """Return a part as JSON, without options that change neither ids nor text."""
    if isinstance(part, decoders.ByteLevel):
        return "ByteLevel"
    if part is None:
        return None
    return json.loads(
        part.__getstate__(), object_hook=lambda spec: {k: v for k, v in spec.items() if k != "trim_offsets"}
    )


class FastTokenizer:
    """A `tokenizers.Tokenizer` with the names of its special tokens and its chat templates.

    Methods and attributes return the same values as those of a transformers tokenizer. `special_tokens_map`:
    named special tokens ("bos_token": "<s>"). `extra`: special tokens without a name. All of them have to be
    tokens of `backend`. `chat_template`: one template, or a mapping of named ones.
    """

    def __init__(
        self,
        backend: Tokenizer,
        special_tokens_map: Mapping[str, str],
        extra: Iterable[str] = (),
        chat_template: str | Mapping[str, str] | None = None,
    ) -> None:
        self.backend_tokenizer = backend
        self.special_tokens_map = dict(special_tokens_map)
        self.all_special_tokens = list(dict.fromkeys((*self.special_tokens_map.values(), *extra)))
        self.chat_template = chat_template

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        return self.backend_tokenizer.get_added_tokens_decoder()

    @property
    def bos_token_id(self) -> int | None:
        return self._id_of("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        return self._id_of("eos_token")

    @property
    def all_special_ids(self) -> list[int | None]:
        """The ids of the named and the extra special tokens."""
        return [self.backend_tokenizer.token_to_id(token) for token in self.all_special_tokens]

    def get_vocab(self) -> dict[str, int]:
        return self.backend_tokenizer.get_vocab(with_added_tokens=True)

    def encode(self, text: str, *, add_special_tokens: bool = True, verbose: bool = True) -> list[int]:
        """Return the ids of `text`, by default with the special tokens around it; `verbose` is ignored."""
        return self.backend_tokenizer.encode(text, add_special_tokens=add_special_tokens).ids

    def decode(
        self,
        ids: Sequence[int],
        *,
        skip_special_tokens: bool = False,
        clean_up_tokenization_spaces: bool = False,
    ) -> str:
        """Return the text of `ids`. Raises ValueError for `clean_up_tokenization_spaces`, which is unused."""
        if clean_up_tokenization_spaces:
            raise ValueError("clean_up_tokenization_spaces needs transformers")
        return str(self.backend_tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def convert_ids_to_tokens(self, token_id: int) -> str | None:
        """Return the token of an id, None for an id without a token."""
        return self.backend_tokenizer.id_to_token(token_id)

    def get_chat_template(self, name: str | None = None, tools: Sequence[Any] | None = None) -> str:
        """Return the template that is called `name`, or the one for a conversation with or without `tools`.

        Raises ValueError if there is none, or if several have names and none is the default.
        """
        templates = self.chat_template
        if templates is None:
            raise ValueError("the tokenizer has no chat template")
        if isinstance(templates, str):
            return templates if name is None else name
        if name is not None:
            return templates.get(name, name)
        if tools is not None and "tool_use" in templates:
            return templates["tool_use"]
        if "default" not in templates:
            raise ValueError(f"none of its templates is the default: {', '.join(sorted(templates))}")
        return templates["default"]

    def _id_of(self, name: str) -> int | None:
        token = self.special_tokens_map.get(name)
        return None if token is None else self.backend_tokenizer.token_to_id(token)
