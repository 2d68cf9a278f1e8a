"""A tokenizer loaded without transformers is the one that transformers loads.

What is not provably the same without transformers is left to transformers, with the reason. Whatever the
files say, a tokenizer is the same without transformers, or it is left to transformers.
"""

import json
import random
import subprocess
import sys
from pathlib import Path

import pytest

from gencli.errors import ModelError
from gencli.models.files import model_card as library
from gencli.models.files.local_models import bundled_folder
from gencli.text import fast_tokenizer as fast_loader
from gencli.text.fast_tokenizer import REGISTERED, FastTokenizer, load_fast
from gencli.text.tokenizer import HFTokenizer
from tests.text.fast_folders import CLASSES, assert_same, change, save

CHATML = (
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if loop.index > 1 %}{% break %}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}{% generation %}<|end|>{% endgeneration %}{% endif %}"
    "{{ mood }}"
)
TOOLS = (
    "{{ bos_token }}{{ tools | tojson(indent=2, sort_keys=true) }}{% set n = namespace(a=1) %}"
    "{% for m in messages %}{% set n.a = n.a + 1 %}{% endfor %}{{ n.a }}"
    "{{ messages | tojson(separators=(',', ':')) }}{{ strftime_now(format='%Y') }}"
)


def test_the_bundled_models():
    for name in ["tiny", "tiny-draft"]:
        assert_same(bundled_folder(name))


def test_models_that_are_known_by_name(tmp_path):
    save(tmp_path, "GPT2Tokenizer", "bytes", "llama")
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    steps = [{"type": "Digits", "individual_digits": True}, byte_level]
    change(tmp_path / "tokenizer.json", pre_tokenizer={"type": "Sequence", "pretokenizers": steps})
    change(tmp_path / "tokenizer_config.json", vocab_size=49152, additional_special_tokens=["<s>"])
    assert_same(tmp_path)

    for legacy in [None, True, False]:
        save(tmp_path, "LlamaTokenizer", "pieces", "llama", bos=True, unk_token="<unk>")
        spaces = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
        steps = [{"type": "Prepend", "prepend": "▁"}, spaces]
        model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
        change(
            tmp_path / "tokenizer.json",
            normalizer={"type": "Sequence", "normalizers": steps},
            pre_tokenizer=None,
            model={**model, "unk_token": "<unk>"},
        )
        change(tmp_path / "tokenizer_config.json", legacy=legacy)
        assert_same(tmp_path)

    save(tmp_path, "Qwen2Tokenizer", "bytes", "qwen2", pad_token="<|end|>")
    change(tmp_path / "tokenizer_config.json", tokenizer_class="LlamaTokenizerFast")
    assert_same(tmp_path)


def test_added_tokens_of_the_configuration(tmp_path):
    told = json.loads((save(tmp_path, bos=True) / "tokenizer.json").read_text())
    tokens = {str(token.pop("id")): token for token in told["added_tokens"]}
    change(tmp_path / "tokenizer_config.json", added_tokens_decoder=tokens)
    (tmp_path / "special_tokens_map.json").write_text('{"bos_token": "<other>"}')  # not read
    assert_same(tmp_path)
    for token in tokens.values():
        token.update(lstrip=not token["lstrip"], normalized=True, special=False)
    tokens["900"] = {"content": "<fresh>", "special": True}
    change(tmp_path / "tokenizer_config.json", added_tokens_decoder=tokens)
    assert_same(tmp_path)


def test_truncation_padding_and_a_missing_post_processor_change_no_text(tmp_path):
    save(tmp_path, pad_token="<pad>")
    shorten = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    pad = {"strategy": {"Fixed": 30}, "direction": "Left", "pad_to_multiple_of": None}
    pad |= {"pad_id": 3, "pad_type_id": 0, "pad_token": "<pad>"}
    change(tmp_path / "tokenizer.json", truncation=shorten, padding=pad)
    assert_same(tmp_path)

    change(save(tmp_path) / "tokenizer.json", post_processor=None)
    assert_same(tmp_path)

    with pytest.raises(ValueError, match="clean_up_tokenization_spaces"):
        load_fast(save(tmp_path)).decode([1], clean_up_tokenization_spaces=True)


def test_chat_templates_of_the_configuration_have_names_or_none(tmp_path):
    for template in [CHATML, TOOLS]:
        change(save(tmp_path) / "tokenizer_config.json", chat_template=template)
        assert_same(tmp_path)

    named = [{"name": "default", "template": CHATML}, {"name": "tool_use", "template": TOOLS}]
    change(save(tmp_path) / "tokenizer_config.json", chat_template=named)
    assert assert_same(tmp_path).get_chat_template("tool_use") == TOOLS


def test_chat_templates_in_files(tmp_path):
    change(save(tmp_path) / "tokenizer_config.json", chat_template="replaced")
    (tmp_path / "chat_template.jinja").write_bytes(CHATML.encode() + b"\r\n")
    assert_same(tmp_path)
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text(TOOLS)
    assert_same(tmp_path)
    (tmp_path / "chat_template.jinja").unlink()
    fast = load_fast(tmp_path)
    assert fast.chat_template == {"tool_use": TOOLS}
    with pytest.raises(ValueError, match="none of its templates is the default: tool_use"):
        fast.get_chat_template()


def test_model_types_are_those_of_transformers():
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    theirs = {"MistralCommonBackend": "TokenizersBackend"}  # with mistral_common, for other files
    for model_type, name in REGISTERED.items():
        found = TOKENIZER_MAPPING_NAMES.get(model_type)
        assert theirs.get(found, found) == name, model_type
        assert CONFIG_MAPPING[model_type].model_type == model_type


def test_the_process_of_templates_imports_no_transformers():
    code = "import sys, gencli.templates.template_worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "tokenizers"} & set(done.stdout.split())


def test_a_fallback_says_why(tmp_path):
    save(tmp_path)
    assert HFTokenizer.load(tmp_path).why_transformers == ""
    (tmp_path / "special_tokens_map.json").write_text("{}")
    assert "special_tokens_map.json" in HFTokenizer.load(Path(tmp_path)).why_transformers


def reason(folder, **options):
    found = load_fast(folder, **options)
    assert isinstance(found, str)
    assert found.endswith(".")
    return found


def test_code_of_the_model_and_missing_or_unread_files(tmp_path):
    assert reason(save(tmp_path), trust_remote_code=True) == "code of the model may run."
    change(tmp_path / "tokenizer_config.json", auto_map={"AutoTokenizer": ["own.Own", None]})
    assert reason(tmp_path) == "it has code of its own."

    for name in ["tokenizer.json", "tokenizer_config.json"]:
        (save(tmp_path) / name).unlink()
        assert reason(tmp_path) == f"there is no {name}.", name

    for name in ["tekken.json", "special_tokens_map.json", "added_tokens.json"]:
        (save(tmp_path) / name).write_text("{}")
        assert reason(tmp_path).startswith(name), name


def test_a_configuration_that_is_not_handled(tmp_path):
    for values, words in [
        ({"tokenizer_class": ...}, "names no tokenizer_class"),
        ({"tokenizer_class": "XLNetTokenizer"}, "class 'XLNetTokenizer' is not known"),
        ({"fix_mistral_regex": True}, "key 'fix_mistral_regex'"),
        ({"fast_tokenizer_files": ["tokenizer.4.0.json"]}, "key 'fast_tokenizer_files'"),
        ({"vocab_file": "/etc/passwd"}, "key 'vocab_file'"),
        ({"image_token": {"content": "x"}}, "key 'image_token'"),
        ({"padding_side": "up"}, "padding_side"),
        ({"split_special_tokens": "yes"}, "split_special_tokens"),
        ({"add_prefix_space": "yes"}, "add_prefix_space"),
        ({"bos_token": {"content": "<s>"}}, "bos_token"),
        ({"bos_token": ""}, "bos_token"),
        ({"extra_special_tokens": [1]}, "extra_special_tokens"),
        ({"extra_special_tokens": {"a": 1}}, "a of tokenizer_config.json"),
        ({"additional_special_tokens": {"a_token": "<a>"}}, "additional_special_tokens"),
        ({"additional_special_tokens": ["<a>"], "extra_special_tokens": ["<b>"]}, "has both"),
        ({"additional_special_tokens": ["<a>"], "extra_special_tokens": {}}, "not special elsewhere"),
        ({"added_tokens_decoder": {"1": "x"}}, "could not be read"),
        ({"added_tokens_decoder": []}, "could not be read"),
        ({"chat_template": ["x", 1]}, "could not be read"),
        ({"chat_template": [{"name": "a", "template": 1}]}, "chat_template"),
        ({"chat_template": 3}, "chat_template"),
    ]:
        change(save(tmp_path) / "tokenizer_config.json", **values)
        assert words in reason(tmp_path), values


def test_a_model_type_that_is_not_handled(tmp_path):
    for values, declared, words in [
        ({}, "TokenizersBackend", "names no model type"),
        ({"model_type": 3}, "TokenizersBackend", "names no model type"),
        ({"model_type": "llama", "model_name": "x"}, "TokenizersBackend", "a model name too"),
        ({"model_type": "bert"}, "TokenizersBackend", "model type 'bert'"),
        ({"model_type": "qwen3"}, "GPT2Tokenizer", "'qwen3' rarely have a 'GPT2Tokenizer'"),
        ({"model_type": "qwen3_5"}, "PreTrainedTokenizerFast", "'qwen3_5' rarely have"),
        ({"model_type": "mistral"}, "MistralCommonBackend", "'MistralCommonBackend'"),
        ({"model_type": "llama", "_name_or_path": "deepseek-ai/x"}, "GPT2Tokenizer", "name of the model"),
    ]:
        change(save(tmp_path) / "tokenizer_config.json", tokenizer_class=declared)
        (tmp_path / "config.json").write_text(json.dumps(values))
        assert words in reason(tmp_path), values


def test_another_version_of_transformers_is_no_reason_where_a_class_replaces_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(library, "version", lambda _: "5.99.0")
    save(tmp_path, "GPT2Tokenizer", "bytes", "gpt2")
    assert_same(tmp_path)


def test_a_model_that_a_class_cannot_have(tmp_path):
    for kind in ["unigram", "words"]:
        change(save(tmp_path, kind=kind) / "tokenizer_config.json", tokenizer_class="GPT2Tokenizer")
        assert "GPT2Tokenizer has no model like that of" in reason(tmp_path), kind

    change(save(tmp_path) / "tokenizer_config.json", tokenizer_class="LlamaTokenizer")
    assert "depends on the version" in reason(tmp_path)

    pad = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None}
    pad |= {"pad_id": 3, "pad_type_id": 0, "pad_token": "<pad>"}
    change(save(tmp_path) / "tokenizer.json", padding=pad)
    assert "names a pad token" in reason(tmp_path)


def test_added_tokens_that_a_class_would_number_anew(tmp_path):
    save(tmp_path, "GPT2Tokenizer", "bytes", "gpt2")
    change(tmp_path / "tokenizer_config.json", added_tokens_decoder={"0": {"content": "<unk>"}})
    assert "has other added tokens" in reason(tmp_path)
    change(tmp_path / "tokenizer_config.json", added_tokens_decoder=...)
    model = json.loads((tmp_path / "tokenizer.json").read_text())["model"]
    model["vocab"]["far"] = 5000
    added = [{"id": 5000, "content": "far", "special": False, "normalized": False}]
    added[0] |= dict.fromkeys(("single_word", "lstrip", "rstrip"), False)
    change(tmp_path / "tokenizer.json", model=model, added_tokens=added)
    assert "do not follow those of the vocabulary" in reason(tmp_path)


def test_a_damaged_file(tmp_path):
    for name in ["tokenizer.json", "tokenizer_config.json", "config.json"]:
        for text in ["{", "[]", "[" * 100_000, "\\x00", ""]:
            (save(tmp_path, model_type="llama") / name).write_text(text)
            assert reason(tmp_path), (name, text)
            if name != "config.json":
                with pytest.raises(ModelError):
                    HFTokenizer.load(tmp_path)


def test_a_panic_is_a_reason_and_an_interrupt_is_none(tmp_path, monkeypatch):
    class PanicException(BaseException):
        pass

    def broken(error):
        def load(folder):
            raise error

        monkeypatch.setattr(fast_loader, "_load", load)

    broken(PanicException("index out of bounds"))
    assert reason(tmp_path) == "a file could not be read: index out of bounds."
    broken(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        load_fast(tmp_path)


TYPES = [None, "llama", "qwen2", "qwen3", "gemma2", "gpt2", "olmo", "olmo2", "granite", "phi3", "mistral"]
DECLARED = ["PreTrainedTokenizerFast", "TokenizersBackend", *CLASSES, *(f"{name}Fast" for name in CLASSES)]
TOKENS = [None, ..., "<s>", "<|end|>", "<tool>", "<new>", " <odd> "]
NAMED = ["bos_token", "eos_token", "unk_token", "pad_token", "mask_token", "cls_token", "image_token"]
LISTS = [[], None, ["<tool>"], ["<one>", "<two>", "<s>"]]
JUNK = [
    None, True, -1, 2**70, 1.5, "", "x", "\x00", [], {}, [[]], {"a": {"b": []}}, ["<s>", 3],
    {"type": "BPE"},
]  # fmt: skip


def token(draw, content):
    flags = ("lstrip", "rstrip", "normalized", "single_word", "special")
    return {"content": content, **{flag: draw.random() < 0.4 for flag in flags}}


def some_folder(draw, folder):
    """A saved tokenizer of a random class and family."""
    name = draw.choice(["TokenizersBackend", *CLASSES])
    kind, model_type, tokens = CLASSES.get(name, (draw.choice(["bytes", "pieces", "unigram"]), None, {}))
    model_type = draw.choice(TYPES) if draw.random() < 0.5 else model_type
    return save(folder, name, kind, model_type, bos=draw.random() < 0.4, eos=draw.random() < 0.4, **tokens)


def some_values(draw, folder):
    """Random values for tokenizer_config.json."""
    possible = {
        **dict.fromkeys(NAMED, TOKENS),
        "tokenizer_class": DECLARED,
        "extra_special_tokens": [*LISTS, {"boi_token": "<boi>", "odd": "<|end|>"}],
        "additional_special_tokens": LISTS,
        "add_prefix_space": [True, False],
        "split_special_tokens": [True, False],
        "legacy": [True, False, None],
        "add_bos_token": [True, False],
        "cls_token": [{"__type": "AddedToken", **token(draw, "<tool>")}],
    }
    values = {key: draw.choice(choices) for key, choices in possible.items() if draw.random() < 0.15}
    if draw.random() < 0.3:
        added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
        told = {str(one["id"]): {key: one[key] for key in one if key != "id"} for one in added}
        for key in [key for key in told if draw.random() < 0.2]:
            told[key] = token(draw, told[key]["content"])
        values["added_tokens_decoder"] = told
    return values


def loaded_without_transformers(seeds, folder):
    """How many random configurations are loaded without transformers; they are the same as with it."""
    count = 0
    for seed in seeds:
        draw, own = random.Random(seed), folder / str(seed)
        some_folder(draw, own)
        change(own / "tokenizer_config.json", **some_values(draw, own))
        if isinstance(fast := load_fast(own), FastTokenizer):
            assert_same(own, fast=fast)
            count += 1
    return count


def test_a_random_configuration(tmp_path):
    assert loaded_without_transformers(range(10), tmp_path) >= 5


def load_damaged(seeds, folder):
    for seed in seeds:
        draw, own = random.Random(seed), folder / str(seed)
        some_folder(draw, own)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            told = json.loads((own / name).read_text())
            for _ in range(draw.randrange(3)):
                place = told
                while isinstance(place, dict) and place:
                    key = draw.choice(list(place))
                    if draw.random() < 0.5 or not isinstance(place[key], dict):
                        place[key] = draw.choice(JUNK)
                        break
                    place = place[key]
            (own / name).write_text(json.dumps(told))
        assert isinstance(load_fast(own), FastTokenizer | str), seed


def test_random_damage_is_never_an_error_of_its_own(tmp_path):
    load_damaged(range(10), tmp_path)
