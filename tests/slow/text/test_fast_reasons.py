"""What is not provably the same without transformers is left to transformers, with the reason."""

import json

from gencli.models.files import model_card as library
from tests.text.fast_folders import CLASSES, assert_same, change, save
from tests.text.test_fast_reasons import reason

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
