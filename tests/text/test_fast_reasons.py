"""What is not provably the same without transformers is left to transformers, with the reason."""

import json

import pytest

from gencli.errors import ModelError
from gencli.models.files import model_card as library
from gencli.text import fast_tokenizer as fast_loader
from gencli.text.fast_tokenizer import load_fast
from gencli.text.tokenizer import HFTokenizer
from tests.text.fast_folders import assert_same, change, save


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
