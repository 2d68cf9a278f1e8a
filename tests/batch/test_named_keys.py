"""Rows choose keys of watermarks by name; no row names a file, and no result has a path or a key."""

import json

import pytest

from tests.batch.conftest import FAKE

KEYS = {"acme": 6090218471334455667, "birch-2": 7182818284590452353}


@pytest.fixture
def keys(tmp_path):
    """The arguments of named keys; one of the files has an equals sign in its name."""
    folder = tmp_path / "keys"
    folder.mkdir()
    for name, number in KEYS.items():
        (folder / f"{name}=1.key").write_text(f"{number}\n")
    return [text for name in KEYS for text in ("--named-key", f"{name}={folder / name}=1.key")]


@pytest.fixture
def base(tmp_path):
    """The arguments of the key of all rows, whose file has an equals sign in its name."""
    path = tmp_path / "acme=base.key"
    path.write_text("42")
    return ("--watermark", "kgw", "--watermark-key", path)


def texts(bench):
    return [result.get("texts") or result["text"] for result in bench.results]


def test_a_key_that_only_rows_use_is_compared_too(bench, base, tmp_path):
    preset = tmp_path / "mine.yaml"
    preset.write_text("watermark: kgw\nwatermark_key: acme=base.key\n")
    flags = ("--preset", preset, "--watermark", "none", "--keep-journal")
    bench.write([{"prompt": "a", "watermark": "kgw"}])
    assert bench.run(*flags).code == 0
    base[-1].write_text("43")
    assert "--watermark-key was '#" in bench.refused(*flags, "--resume")


def test_cells_of_a_table_and_columns_of_data_name_keys_too(bench, keys):
    table = bench.folder / "in.csv"
    table.write_text("prompt,watermark,watermark_key\na,kgw,acme\na,kgw,birch-2\na,,\n")
    bench.write([{"prompt": "a", "watermark": "kgw", "watermark_key": "acme"}])
    assert bench.call(table, "-o", bench.output, *FAKE, *keys).code == 0
    found = texts(bench)
    assert len(set(found)) == 3
    options = json.dumps({"watermark": "kgw", "watermark_key": "acme"})
    bench.write([{"text": "a", "options": options}])
    assert bench.run("--prompt-column", "text", *keys, "--overwrite").code == 0
    assert texts(bench) == found[:1]


def test_wrong_names_and_files_end_the_run_before_it_begins(bench):
    cases = [
        (["--named-key", "acme"], 2, "--named-key: 'acme' is not of the form NAME=FILE"),
        (["--named-key", "a b=c.key"], 2, "is not of the form NAME=FILE"),
        (["--named-key", "=c.key"], 2, "is not of the form NAME=FILE"),
        (["--named-key", "acme=c.key", "--named-key", "acme=d.key"], 2, "'acme' is given two values"),
        (["--named-key", "acme=missing.key"], 3, "The key acme: the file missing.key cannot be read"),
        (["--named-key", "acme="], 3, "The key acme: the file  cannot be read"),
    ]
    bench.write([{"prompt": "a"}])
    for arguments, code, message in cases:
        done = bench.run(*arguments)
        assert (done.code, message in done.err, bench.output.exists()) == (code, True, False), done.err


def test_what_is_wrong_with_a_file_is_said_in_the_row_by_name(bench, keys, tmp_path):
    (tmp_path / "keys" / "acme=1.key").write_text("key: 1\nalpha: 0.5")
    bench.write([{"prompt": "a", "watermark": kind, "watermark_key": "acme"} for kind in ("gumbel", "kgw")])
    assert bench.run(*keys).code == 7
    marked, wrong = bench.results
    assert marked["error"] is None
    assert wrong["error"]["message"].startswith(
        "The file of the key acme has an unknown field 'alpha'; the fields of kgw"
    )


def test_keys_that_no_row_chooses_are_said(bench, keys):
    bench.write([{"prompt": "a"}])
    assert "so the keys of --named-key are not used" in bench.run(*keys).err
