"""Writing results: every format is read back, and nothing has its name before it is complete."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gencli.batch.batch_records import Outcome
from gencli.batch.batch_sources import open_input
from gencli.batch.output_formats import safe_name
from tests.batch.outputs.test_outputs import write
from tests.batch.test_openai import result


def test_parquet_has_the_same_columns_typed(tmp_path):
    pytest.importorskip("pyarrow")
    from pyarrow import parquet

    many = [Outcome(index, str(index), result(input={"label": index})) for index in range(2500)]
    write(tmp_path / "out.parquet", rows=many)
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.num_rows == 2500
    assert table.schema.field("input.label").type == "int64"
    assert table.slice(2499).to_pylist()[0] == {
        "index": 2499, "id": "2499", "sample": 1, "prompt": "p", "text": "t", "finish_reason": "eos",
        "matched": None, "prompt_tokens": 2, "completion_tokens": 3, "seed": "1", "error_type": None,
        "error_message": None, "input.label": 2499, "input.note": None,
    }  # fmt: skip


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2, unique=True))
def test_file_names_are_safe_and_tell_ids_apart(ids):
    names = [safe_name(name) for name in ids]
    assert names[0] != names[1]
    for name in names:
        assert Path(name).name == name
        assert name.isascii()
        assert not name.startswith((".", "~"))
        assert len(name) < 200
        assert not set(name) & set('<>:"/\\|?* \0')


@given(texts=st.lists(st.text(), max_size=5))
@settings(max_examples=30)
def test_what_is_written_is_read_back_as_input(tmp_path_factory, texts):
    path = tmp_path_factory.mktemp("out")
    rows = [Outcome(index, str(index), result(text=text)) for index, text in enumerate(texts)]
    for name in ("o.jsonl", "o.csv", "o.jsonl.gz"):
        write(path / name, rows=rows)
        assert [record.columns["text"] for record in open_input([str(path / name)])] == texts
