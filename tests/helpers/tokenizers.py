"""The tokenizers of published models, which lie compressed in tests/data/tokenizers."""

import lzma
from pathlib import Path

__all__ = ["tokenizer_json", "unpack_tokenizer"]

PACKED = Path(__file__).parent.parent / "data" / "tokenizers"


def tokenizer_json(name: str) -> str:
    """The text of the tokenizer.json of `name`: gpt-2 or qwen2."""
    return lzma.decompress((PACKED / name / "tokenizer.json.xz").read_bytes()).decode()


def unpack_tokenizer(name: str, folder: Path) -> None:
    """Write the tokenizer's files into an empty folder, as they lie beside a model."""
    (folder / "tokenizer.json").write_text(tokenizer_json(name), encoding="utf-8")
    config = (PACKED / name / "tokenizer_config.json").read_bytes()
    (folder / "tokenizer_config.json").write_bytes(config)
