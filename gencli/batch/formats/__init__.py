"""Readers of input files, one for each format; each yields records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from gencli.batch.formats.base import Reader
from gencli.batch.formats.jsonarray import read_array
from gencli.batch.formats.jsonl import read_json_lines
from gencli.batch.formats.parquet import read_parquet
from gencli.batch.formats.table import read_table
from gencli.batch.formats.text import read_document, read_lines, read_paragraphs

__all__ = ["READERS", "SUFFIXES"]

READERS: Mapping[str, Reader] = {
    "jsonl": read_json_lines,
    "json": read_array,
    "csv": partial(read_table, delimiter=","),
    "tsv": partial(read_table, delimiter="\t"),
    "parquet": read_parquet,
    "lines": read_lines,
    "paragraphs": read_paragraphs,
    "document": read_document,
}
SUFFIXES: Mapping[str, str] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".txt": "lines",
}
