"""The tokenizer of a GGUF file gives the ids and the texts of the tokenizer it was converted from."""

from pathlib import Path

from tests.slow.text.test_gguf_tokenizer import check_published


def test_published_byte_level_tokenizers_are_the_same(tmp_path: Path) -> None:
    for name in ("gpt-2", "qwen2"):
        (tmp_path / name).mkdir()
        check_published(tmp_path / name, name)
