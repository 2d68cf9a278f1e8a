"""Which columns are what: prompts, ids, options, data; and that a fault stays with its row."""

import json

from hypothesis import given
from hypothesis import strategies as st

from gencli.batch.batch_records import Record
from gencli.batch.batch_rows import RowOptions, make_rows
from gencli.config.job import REQUEST_KEYS
from gencli.templates import chat_templates as renderer_module
from gencli.templates.chat_templates import MAX_PROMPT
from gencli.templates.prompt_templates import read_template
from tests.batch.formats.test_formats import VALUES
from tests.batch.test_rows import cells, jobs, reason

JOBS = jobs()


def test_the_error_of_a_template_is_that_of_its_row():
    cases = [
        ("{{ titel }}", "The template failed: the row has no column 'titel'. Did you mean 'title'?"),
        ("{{ title * 10000000 }}", f"the result is longer than {MAX_PROMPT} characters"),
        ("{% for i in range(99999) %}{{ title }}{% endfor %}", f"longer than {MAX_PROMPT} characters"),
        ("{{ 9 ** 999999 }}", "digits"),
        ("{{ title.__class__.__mro__ }}", "unsafe"),
        ("{{ title.missing }}", "has no attribute 'missing'"),
        ("{{ title + 1 }}", "The template failed: "),
        ("{{ '' }}", "The prompt is empty."),
    ]
    for text, message in cases:
        columns = {"title": "a title of many words"}
        assert message in reason(columns, RowOptions(template=read_template(text))), text


NAMES = [*sorted(REQUEST_KEYS), "prompt", "messages", "options", "custom_id", "url", "body", "model", "x"]


COLUMNS = st.dictionaries(st.sampled_from(NAMES), VALUES | st.dictionaries(st.sampled_from(NAMES), VALUES))


@given(columns=COLUMNS, is_table=st.booleans(), options=st.sampled_from([
    RowOptions(), RowOptions(prompt_column="prompt", id_column="x"), RowOptions(keep_input=True),
    RowOptions(template=read_template("{{ x }}{{ prompt }}")),
]))  # fmt: skip
def test_whatever_stands_in_a_record_is_a_row_or_its_failure(columns, is_table, options):
    columns = cells(**{name: json.dumps(value) for name, value in columns.items()}) if is_table else columns
    (made,) = make_rows([Record(0, "f:1", columns)], options, JOBS)
    assert (made.failure is None) == bool(made.prompt or made.messages)
    assert json.loads(json.dumps(dict(made.options))) == made.options


def test_a_template_that_does_not_end_is_the_error_of_its_row(monkeypatch):
    monkeypatch.setattr(renderer_module, "SECONDS", 0.5)
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    options = RowOptions(template=read_template(endless))
    assert "did not end within" in reason({"title": "x"}, options)
