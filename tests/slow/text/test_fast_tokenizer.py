"""A tokenizer loaded without transformers is the one that transformers loads.

What is not provably the same without transformers is left to transformers, with the reason.
"""

import json
import shutil
import subprocess
import sys

from gencli.models.files import model_card as library
from gencli.models.files.local_models import bundled_folder
from gencli.text.fast_tokenizer import DEFAULTS
from tests.text.fast_folders import CLASSES, assert_same, change, save
from tests.text.test_fast_tokenizer import reason


def test_a_class_that_builds_its_parts(tmp_path):
    for options in [{}, {"add_prefix_space": True}, {"add_prefix_space": False}]:
        for name in CLASSES:
            kind, model_type, tokens = CLASSES[name]
            bos = name != "GPTNeoXTokenizer"
            assert_same(save(tmp_path, name, kind, model_type, bos=bos, **tokens, **options))

    for name in CLASSES:
        kind, _, tokens = CLASSES[name]
        save(tmp_path, name, kind, **tokens)
        change(
            tmp_path / "tokenizer_config.json", **dict.fromkeys(DEFAULTS[name].keys() - {"unk_token"}, ...)
        )
        fast = assert_same(tmp_path)
        assert (
            fast.special_tokens_map.items()
            >= {key: token for key, token in DEFAULTS[name].items() if key != "unk_token"}.items()
        ), name


def test_only_the_fallback_imports_transformers(tmp_path):
    shutil.copytree(bundled_folder("tiny"), tmp_path / "model")
    code = """
import sys
from gencli.runtime.model_loading import load_tokenizer
for name in sys.argv[1:]:
    tokenizer = load_tokenizer(name)
    assert tokenizer.why_transformers == ""
    assert tokenizer.decode(tokenizer.encode("Once upon")) == "Once upon"
    assert len(tokenizer.token_bytes) == tokenizer.vocab_size
    assert "hi" in tokenizer.render_chat([{"role": "user", "content": "hi"}])
print(*sys.modules)
"""
    command = [sys.executable, "-c", code, "tiny", "tiny-draft", str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "tokenizers" in done.stdout.split()
    assert "transformers" not in done.stdout.split()


def test_tokenize_imports_neither_torch_nor_transformers():
    code = """
import sys
from gencli.cli.app import main
try:
    main(["tokenize", "--chat", "Once upon"])
except SystemExit as end:
    assert not end.code
print(*sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "tokenizers" in done.stdout.split()
    assert not {"torch", "transformers"} & set(done.stdout.split())


FAMILIES = [
    ("llama", "PreTrainedTokenizerFast"),
    ("llama", "TokenizersBackend"),
    ("mistral", "LlamaTokenizerFast"),
    ("granite", "GPT2Tokenizer"),
    ("olmo2", "GPT2Tokenizer"),
    ("olmo2", "GPTNeoXTokenizerFast"),
    ("phi3", "LlamaTokenizerFast"),
    ("gemma2", "PreTrainedTokenizerFast"),
    ("gpt2", "PreTrainedTokenizer"),
    ("smollm3", "PreTrainedTokenizerFast"),
    ("stablelm", "Unknown"),
]


def test_a_tokenizer_that_is_taken_as_it_is(tmp_path):
    for around in [{}, {"bos": True}, {"bos": True, "eos": True}]:
        for kind in ["bytes", "pieces", "unigram", "words"]:
            assert_same(save(tmp_path, kind=kind, unk_token="<unk>", pad_token="<pad>", **around))


def test_a_family_whose_tokenizer_is_taken_as_it_is(tmp_path):
    for model_type, name in FAMILIES:
        save(tmp_path, kind="bytes", model_type=model_type, bos=True)
        change(tmp_path / "tokenizer_config.json", tokenizer_class=name)
        assert_same(tmp_path)


def test_what_the_configuration_says(tmp_path):
    for values in [
        {"add_bos_token": True, "add_eos_token": True},
        {"split_special_tokens": True},
        {"clean_up_tokenization_spaces": True},
        {
            "vocab_size": 7, "tokenizer_file": "/none", "vocab_file": None, "sp_model_kwargs": {},
            "errors": "x",
        },
        {"extra_special_tokens": ["<tool>", "<fresh>", "<s>"]},
        {"extra_special_tokens": {"boi_token": "<boi>", "odd": "<|end|>"}},
        {"additional_special_tokens": ["<tool>", "<fresh>"]},
        {"additional_special_tokens": ["<|end|>"], "extra_special_tokens": {}},
        {"model_specific_special_tokens": {"boi_token": "<boi>"}},
        {"image_token": "<image>", "bos_token": None, "eos_token": "<tool>", "pad_token": "<fresh>"},
        {"mask_token": {"__type": "AddedToken", "content": "<mask>", "lstrip": True, "normalized": False}},
        {"cls_token": {"__type": "AddedToken", "content": "<tool>", "rstrip": True}},
        {"model_max_length": 2, "max_length": 2, "truncation_side": "left", "padding_side": "left"},
    ]:  # fmt: skip
        change(save(tmp_path, bos=True) / "tokenizer_config.json", **values)
        assert_same(tmp_path)


REPLACED = [
    ("LlamaTokenizer", {"normalizer": {"type": "Prepend", "prepend": "▁"}}, "normalizer"),
    ("GemmaTokenizer", {"normalizer": None}, "normalizer"),
    ("Qwen2Tokenizer", {"normalizer": {"type": "NFKC"}}, "normalizer"),
    ("Qwen3_5Tokenizer", {"decoder": {"type": "Fuse"}}, "decoder"),
    ("GPT2Tokenizer", {"pre_tokenizer": {"type": "Digits", "individual_digits": True}}, "pre-tokenizer"),
    ("GPTNeoXTokenizer", {"decoder": None}, "decoder"),
    ("LlamaTokenizer", {"unk_token": "<unk>", "fuse_unk": False}, "model"),
    ("Qwen2Tokenizer", {"byte_fallback": True, "ignore_merges": True, "dropout": 1.0}, "model"),
    ("GPT2Tokenizer", {"unk_token": "<s>"}, "model"),
    ("GPTNeoXTokenizer", {"post_processor": {"type": "BertProcessing", "sep": ["a", 5], "cls": ["b", 6]}},
     "post-processor"),
]  # fmt: skip


def test_a_class_replaces_parts_as_those_versions_of_transformers_do_that_are_known(tmp_path, monkeypatch):
    for name, values, part in REPLACED:
        with monkeypatch.context() as patch:
            kind, model_type, tokens = CLASSES[name]
            path = save(tmp_path, name, kind, model_type, **tokens) / "tokenizer.json"
            model = json.loads(path.read_text())["model"]
            change(path, **({"model": {**model, **values}} if part == "model" else values))
            assert_same(tmp_path)
            for unknown in ("5.16.2", "5.99.0", "6.0.dev0", "odd"):
                patch.setattr(library, "version", lambda _, unknown=unknown: unknown)
                assert f"{name} may replace the {part}" in reason(tmp_path), name
