"""A key file gives a watermark's values, under the names of several systems; no fault shows what is in it."""

import json
import re

import pytest

from gencli.errors import ConfigError
from gencli.watermark_keys import NamedKey, file_fingerprint, read_key_file
from processors.stages.watermarks import GumbelMarkParams, KgwParams, SynthIdParams
from tests.helpers.refusal import refusal

KEY = 918273645546372819


@pytest.fixture
def params(tmp_path):
    def read(kind, content):
        path = tmp_path / "mark.key"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_key_file(kind, str(path))

    return read


def test_a_number_is_a_key(params):
    for text in [f"{KEY}", f" {KEY}\n", hex(KEY), f"key: {KEY}", json.dumps({"key": KEY})]:
        assert params("kgw", text) == KgwParams(KEY), text
        assert params("gumbel", text) == GumbelMarkParams(KEY), text


def test_the_names_of_other_systems_are_read(params):
    kgw = {"hashing_key": KEY, "greenlist_ratio": 0.5, "bias": 1, "seeding_scheme": "selfhash"}
    assert params("kgw", json.dumps(kgw)) == KgwParams(KEY, ratio=0.5, bias=1.0, scheme="selfhash")
    synthid = {"keys": [1, KEY], "ngram_len": 4, "context_history_size": 9}
    assert params("synthid", json.dumps(synthid)) == SynthIdParams((1, KEY), ngram=4, history=9)
    gumbel = "watermark: gumbel\nkey: 5\ncontext_width: 2\ndeduplicate_contexts: all\nalpha: 0.1"
    assert params("gumbel", gumbel) == GumbelMarkParams(5, width=2, deduplicate="all", alpha=0.1)


def test_synthid_takes_many_keys_or_makes_thirty_of_one(params):
    assert params("synthid", "1, 2\n3") == SynthIdParams((1, 2, 3))
    made = params("synthid", f"{KEY}")
    assert len(set(made.key.numbers)) == 30
    assert made == params("synthid", f"keys: {KEY}")
    assert made != params("synthid", f"{KEY + 1}")


def test_a_file_that_is_not_there_is_named():
    for name in ["", "absent.key", "/", "a\0b", "x" * 5000]:
        assert re.search("cannot be read", refusal(ConfigError, read_key_file, "kgw", name)), name


def test_a_fingerprint_stands_for_the_content(tmp_path):
    path = tmp_path / "k"
    path.write_text("1")
    first = file_fingerprint(path)
    path.write_text("2")
    assert first != file_fingerprint(path)
    assert file_fingerprint(tmp_path / "absent") is None


def test_a_named_key_is_that_of_its_file_and_says_its_name_alone(params, tmp_path):
    expected = params("kgw", f"{KEY}")
    found = NamedKey.read_all([("acme", str(tmp_path / "mark.key"))])
    (tmp_path / "mark.key").write_text("not read again")
    assert read_key_file("kgw", found["acme"]) == expected
    assert repr(found) == "{'acme': NamedKey(name='acme')}"
    with pytest.raises(ConfigError, match=r"^The file of the key acme has neither whole numbers") as error:
        read_key_file("kgw", NamedKey("acme", "x 918273645546372819"))
    assert "918273645546372819" not in f"{error.value}{error.value.hint}"
