"""A tokenizer loaded without transformers is the one that transformers loads.

Whatever the files say, a tokenizer is the same without transformers, or it is left to transformers.
"""

from tests.helpers.tokenizers import unpack_tokenizer
from tests.text.fast_folders import assert_same, change
from tests.text.test_fast_tokenizer import load_damaged, loaded_without_transformers


def test_published_models(tmp_path):
    for name in ["gpt-2", "qwen2"]:
        (tmp_path / name).mkdir()
        unpack_tokenizer(name, tmp_path / name)
        change(tmp_path / name / "config.json", model_type=name.replace("-", ""))
        assert_same(tmp_path / name)


def test_many_random_configurations(tmp_path):
    assert loaded_without_transformers(range(60), tmp_path) >= 30


def test_much_random_damage_is_never_an_error_of_its_own(tmp_path):
    load_damaged(range(60), tmp_path)
