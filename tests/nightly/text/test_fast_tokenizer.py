"""A tokenizer loaded without transformers is the one that transformers loads."""

from tests.helpers.tokenizers import unpack_tokenizer
from tests.text.fast_folders import assert_same, change


def test_published_models(tmp_path):
    for name in ["gpt-2", "qwen2"]:
        (tmp_path / name).mkdir()
        unpack_tokenizer(name, tmp_path / name)
        change(tmp_path / name / "config.json", model_type=name.replace("-", ""))
        assert_same(tmp_path / name)
