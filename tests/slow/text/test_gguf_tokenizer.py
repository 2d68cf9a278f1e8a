"""The tokenizer of a GGUF file gives the ids and the texts of the tokenizer it was converted from."""

from pathlib import Path

from tokenizers import Tokenizer, normalizers

from tests.helpers.gguf_files import add_byte_level
from tests.helpers.tokenizers import tokenizer_json
from tests.text.test_gguf_tokenizer import assert_same, samples, written


def check_published(tmp_path: Path, pre: str, num_samples: int = 300) -> None:
    """The ids and texts of a published tokenizer are the same."""
    original = Tokenizer.from_str(tokenizer_json(pre))
    if pre == "qwen2":  # transformers' class for Qwen2 composes characters
        original.normalizer = normalizers.NFC()
    found = written(tmp_path / "model.gguf", lambda writer: add_byte_level(writer, original, pre, eos=0))
    added = [token.content for token in original.get_added_tokens_decoder().values()][:5]
    assert_same(found, original, samples(num_samples, *added))
    assert found.vocab_size == original.get_vocab_size()
    assert found.special_ids == {
        number for number, token in original.get_added_tokens_decoder().items() if token.special
    } | {0}


def test_a_published_byte_level_tokenizer_is_the_same(tmp_path: Path) -> None:
    check_published(tmp_path, "gpt-2", 60)
