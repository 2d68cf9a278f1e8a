"""Whatever the files say, a tokenizer is the same without transformers, or it is left to transformers."""

from tests.text.test_fast_random import load_damaged, loaded_without_transformers


def test_many_random_configurations(tmp_path):
    assert loaded_without_transformers(range(60), tmp_path) >= 30


def test_much_random_damage_is_never_an_error_of_its_own(tmp_path):
    load_damaged(range(60), tmp_path)
