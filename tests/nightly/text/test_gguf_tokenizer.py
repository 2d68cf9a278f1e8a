"""The tokenizer of a GGUF file gives the ids and the texts of the tokenizer it was converted from."""

from pathlib import Path

from tests.slow.text.test_gguf_tokenizer import check_published


def test_another_published_byte_level_tokenizer_is_the_same(tmp_path: Path) -> None:
    check_published(tmp_path, "gpt-2")
