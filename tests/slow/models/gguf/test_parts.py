"""Files in parts: any part names the model; missing and foreign parts are refused by name."""

from pathlib import Path

from gencli.models.files.checkpoint import identify
from gencli.models.files.gguf_header import read_gguf_head
from gencli.models.files.model_card import read_card
from tests.models.gguf.test_parts import split, whole
from tests.models.gguf.test_reader import load, texts


def test_any_part_is_the_model(whole: Path) -> None:
    parts = split(whole)
    for part in parts[:2]:
        assert texts(load(part)) == texts(load(whole))
        assert read_gguf_head(part).files == tuple(parts)
        assert read_card(part).weights.bytes == sum(one.stat().st_size for one in parts)
    assert identify(parts[1]).sha256 == identify(parts[0]).sha256 != identify(whole).sha256
