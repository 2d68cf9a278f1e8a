"""The table of the formats of results: what each one is, and that commands offer what the table has."""

import itertools
import json

import yaml

from gencli.cli.commands import compare
from gencli.cli.usage import FORMAT, with_format
from gencli.config.result_formats import FORMATS
from gencli.config.run_options import option

RECORDS = [{"id": "1", "text": "a\nb"}, {"id": "2", "text": "ä", "score": None}]


def test_records_one_after_the_other_are_read_back():
    readers = {"jsonl": lambda text: map(json.loads, text.splitlines()), "yaml": yaml.safe_load_all}
    assert {name for name, form in FORMATS.items() if form.by_record} == {*readers}
    for name, read in readers.items():
        for encoding in ("utf-8", "ascii"):
            parts = zip(RECORDS, itertools.chain([True], itertools.repeat(False)), strict=False)
            text = "".join(
                FORMATS[name].encode(record, encoding, is_first=is_first) for record, is_first in parts
            )
            assert [*read(text)] == RECORDS, name
            assert text.encode(encoding).endswith(b"\n")


def test_what_is_a_line_has_one_line_end():
    for form in FORMATS.values():
        if form.is_lines:
            assert form.encode(RECORDS[0]).count("\n") == 1


def test_commands_offer_the_formats_of_the_table():
    assert option("format").choices == tuple(FORMATS)
    of_compare = next(entry for entry in compare.PAGE.options if entry.key == "format")
    assert of_compare.choices == tuple(FORMATS)
    assert FORMAT.choices == tuple(name for name, form in FORMATS.items() if not form.is_lines)
    assert {*FORMATS} < {*next(e for e in compare.SWEEP_PAGE.options if e.key == "format").choices}


def test_the_suffix_of_the_output_names_the_format():
    for name, form in FORMATS.items():
        for suffix in (name, *form.suffixes):
            given = with_format({"output": f"x.{suffix.upper()}"})
            assert given.get("format") == (None if form.is_text else name)
    assert with_format({"output": "x.yml", "format": "json"})["format"] == "json"
    assert "format" not in with_format({"output": "x.csv"})
    assert with_format({"output": "x.csv"}, "csv")["format"] == "csv"
