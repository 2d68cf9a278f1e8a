"""Rows of files to score, as tables."""

import csv
import io
import json

import pytest

from tests.batch.test_score_files import score


def test_tables_have_a_row_for_each_text_and_choice(score, tmp_path):
    _, out, _ = score("--format", "csv", "--keep-input", "--tokens", "1", "--group-by", "lang")
    rows = [*csv.DictReader(io.StringIO(out))]
    assert [row["choice"] for row in rows] == ["", "", "", "0", "1", "", ""]
    assert [row["group"] for row in rows] == [row["input.lang"] for row in rows]
    assert len(json.loads(rows[0]["token_scores"])) == 7
    assert {rows[3]["best"], rows[4]["best"]} >= {""} or rows[3]["best"].split()
    parquet = pytest.importorskip("pyarrow.parquet")
    score("-o", tmp_path / "out.parquet")
    table = parquet.read_table(tmp_path / "out.parquet").to_pylist()
    assert [row["logprob"] for row in table] == [float(row["logprob"]) for row in rows]
    assert "group" not in table[0]
