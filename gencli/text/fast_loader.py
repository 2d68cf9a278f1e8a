"""Loads the tokenizer of a model folder without transformers, if the result is provably the same.

The steps are those of AutoTokenizer.from_pretrained (transformers 5.17 to 5.24) for a local folder. What they
do not cover raises NeedsTransformers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer

from gencli.errors import is_panic
from gencli.models.files.model_files import read_object
from gencli.text.fast_classes import AS_IS, DEFAULTS, NeedsTransformers, build_parts, class_of
from gencli.text.fast_tokenizer import FastTokenizer

__all__ = ["load_fast"]

_Token = str | AddedToken
_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_TOKENS = ("additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens")
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
    name = class_of(_model_type(model), config["tokenizer_class"])
    if name != AS_IS and any(str(path).lower().startswith(_BY_NAME) for path in _paths(folder, model)):
        raise NeedsTransformers("transformers chooses the class by the name of the model")
    if name == "LlamaTokenizer" and b'"ByteLevel"' in (folder / "tokenizer.json").read_bytes():
        raise NeedsTransformers("a LlamaTokenizer with ByteLevel depends on the version of transformers")
    template = _chat_template(folder, config)
    backend = Tokenizer.from_file(str(folder / "tokenizer.json"))
    added = _added_tokens(folder, config, backend)
    if name != AS_IS:
        _check_added(added, backend)
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


def _model_type(model: Mapping[str, Any] | None) -> str | None:
    """Return the model type of config.json, None without the file."""
    if model is None:
        return None
    if not isinstance(model.get("model_type"), str) or "model_name" in model:
        raise NeedsTransformers("config.json names no model type, or a model name too")
    return str(model["model_type"])


def _paths(folder: Path, model: Mapping[str, Any] | None) -> tuple[str, str]:
    return str(folder), str((model or {}).get("_name_or_path"))


def _chat_template(folder: Path, config: Mapping[str, Any]) -> str | dict[str, str] | None:
    """Return the chat template, or templates by name. Template files override the configuration."""
    single = folder / "chat_template.jinja"
    files = {"default": single} if single.is_file() else {}
    more = (folder / "additional_chat_templates").glob("*.jinja")
    files |= {path.name.removesuffix(".jinja"): path for path in more if path.is_file()}
    found: Any = {name: path.read_text(encoding="utf-8") for name, path in files.items()}
    if found.keys() == {"default"}:
        return str(found["default"])
    found = found or config.get("chat_template")
    if isinstance(found, list):
        found = {template["name"]: template["template"] for template in found}
    texts = found.values() if isinstance(found, dict) else [found or ""]
    if not all(isinstance(text, str) for text in texts):
        raise _odd("chat_template")
    templates: str | dict[str, str] | None = found
    return templates


def _added_tokens(folder: Path, config: Mapping[str, Any], backend: Tokenizer) -> dict[int, AddedToken]:
    """Return by id the added tokens that transformers adds to those of tokenizer.json."""
    if "added_tokens_decoder" in config:
        declared = config["added_tokens_decoder"].items()
        return {int(token_id): AddedToken(**token) for token_id, token in declared}
    for name in ("added_tokens.json", "special_tokens_map.json"):
        if (folder / name).exists():
            raise NeedsTransformers(f"{name} is read, because there is no added_tokens_decoder")
    added: dict[int, AddedToken] = backend.get_added_tokens_decoder()
    return added


def _check_added(added: Mapping[int, AddedToken], backend: Tokenizer) -> None:
    """Raise NeedsTransformers if a class that rebuilds its model would give added tokens other ids."""
    known = backend.get_added_tokens_decoder()
    if {key: _state(token) for key, token in added.items()} != {k: _state(t) for k, t in known.items()}:
        raise NeedsTransformers("tokenizer_config.json has other added tokens than tokenizer.json")
    size = backend.get_vocab_size(with_added_tokens=False)
    new = {token_id for token_id in known if backend.model.id_to_token(token_id) is None}
    if new != set(range(size, size + len(new))) or max(known.keys() - new, default=-1) >= size:
        raise NeedsTransformers("the ids of the added tokens do not follow those of the vocabulary")


def _state(token: AddedToken) -> Any:
    return token.__getstate__()


def _named(config: Mapping[str, Any], added: Mapping[int, AddedToken], name: str) -> dict[str, _Token]:
    """Return the named special tokens; names used by the model alone come last."""
    by_text = {token.content: token for token in added.values()}
    found: dict[str, _Token] = {}
    for key in _NAMED:
        if key in config and config[key] is not None:
            token = _token(config[key], key)
            found[key] = by_text.get(str(token), token)
        elif key not in config and key in DEFAULTS[name]:
            found[key] = DEFAULTS[name][key]
    own = {key: value for key, value in config.items() if key.endswith("_token") and key not in _KEYS}
    if isinstance(config.get("extra_special_tokens"), dict):
        own |= config["extra_special_tokens"]
    own = own or config.get("model_specific_special_tokens") or {}
    return found | {key: _token(value, key) for key, value in own.items()}


def _extra(config: Mapping[str, Any], backend: Tokenizer) -> Iterator[str]:
    """Yield the special tokens that have no name."""
    if all(config.get(key) for key in _TOKENS[:2]):
        raise NeedsTransformers("it has both additional_special_tokens and extra_special_tokens")
    key = "additional_special_tokens" if config.get("additional_special_tokens") else "extra_special_tokens"
    found = config.get(key) or []
    if key == "extra_special_tokens" and isinstance(found, dict):
        return  # these tokens have names
    if not isinstance(found, list) or not all(isinstance(token, str) and token for token in found):
        raise _odd(key)
    if key != "extra_special_tokens" and "extra_special_tokens" in config:  # not read by transformers 5.17
        special = {t.content for t in backend.get_added_tokens_decoder().values() if t.special}
        if not special.issuperset(found):
            raise NeedsTransformers("additional_special_tokens has tokens that are not special elsewhere")
    yield from found


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
    known = {token.content for token in (*backend.get_added_tokens_decoder().values(), *added.values())}
    for token in (*named.values(), *extra):
        if str(token) not in known and token not in tokens:
            tokens.append(token)
    names = {str(token) for token in named.values()}
    special = []
    for token in tokens:
        if isinstance(token, str):
            special.append(AddedToken(token, special=True))
            continue
        token.special = token.special or token.content in names
        special.append(token)
    if special:
        backend.add_tokens(special)
