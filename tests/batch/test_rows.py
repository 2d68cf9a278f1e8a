"""Which columns are what: prompts, ids, options, data; and that a fault stays with its row."""

import json

import pytest

from gencli.batch.batch_records import Failure, Record
from gencli.batch.batch_rows import RowOptions, conversation, make_rows, row_jobs
from gencli.batch.input_formats import Cell
from gencli.config.job import REQUEST_KEYS
from gencli.config.run_options import OPTIONS
from gencli.config.settings import FLAG, resolve
from gencli.errors import UsageError
from gencli.templates.prompt_templates import read_template


def jobs(**flags):
    return row_jobs(resolve((FLAG, {"seed": 1, **flags})))


def row(columns, options=None, **flags):
    (made,) = make_rows([Record(3, "f:4", columns)], options or RowOptions(), jobs(**flags))
    return made


def cells(**columns):
    return {name: Cell(value) for name, value in columns.items()}


def reason(columns, options=None, **flags):
    failure = row(columns, options, **flags).failure
    assert failure, "the row has no fault"
    return failure.message


def test_a_row_has_a_prompt_its_index_as_id_and_options_beside_it():
    made = row({"prompt": "a", "temperature": 0.5, "options": {"n": 2}, "max_tokens": None})
    assert (made.prompt, made.id, made.failure) == ("a", "3", None)
    assert made.options == {"temperature": 0.5, "n": 2}


MESSAGES = [{"role": "user", "content": "hi"}]


def test_messages_are_a_list_or_its_json():
    parts = [{"type": "text", "text": "h"}, {"type": "text", "text": "i"}]
    for value in (MESSAGES, json.dumps(MESSAGES), [{"role": "user", "content": parts, "name": None}]):
        assert row({"messages": value}).messages == tuple(MESSAGES), value


def test_what_is_wrong_with_a_row_is_said_by_name():
    cases = [
        ({}, "The row has neither prompt nor messages."),
        ({"text": "a"}, "Set `prompt_column` or `template`."),
        ({"prompt": "a", "messages": MESSAGES}, "The row has both prompt and messages."),
        ({"prompt": ""}, "The prompt is empty."),
        ({"prompt": Cell("")}, "The prompt is empty."),
        ({"prompt": 5}, "The prompt is 5, but has to be a text."),
        ({"prompt": "a", "temprature": 1}, "no option 'temprature'. Did you mean 'temperature'?"),
        ({"prompt": "a", "promt": 1}, "Did you mean 'prompt'?"),
        ({"prompt": "a", "label": 1}, "Columns that are data need `template`, `prompt_column` or `keep"),
        ({"prompt": "a", "id": [1]}, "The id (column id) is [1], but has to be a text or a whole number."),
        ({"prompt": "a", "model": "x"}, "model is set for the whole run, not by a row: one model serves all"),
        ({"prompt": "a", "device": "cpu"}, "device is set for the whole run"),
        ({"prompt": "a", "plugin": "x.py"}, "a file must not be able to run code"),
        ({"prompt": "a", "output": "x"}, "output is set for the whole run"),
        ({"prompt": "a", "frequency": 1}, "It is a stage: write it under stages."),
        ({"prompt": "a", "temperature": -1}, "temperature is -1"),
        ({"prompt": "a", "max_tokens": "12"}, "max_tokens"),
        ({"prompt": "a", "seed": 2**64}, "seed is 18446744073709551616, but has to be a number >= 0 and <="),
        ({"prompt": "a", "seed": -1}, "seed"),
        ({"prompt": "a", "stop_regex": "("}, "("),
        ({"prompt": "a", "stages": {"dryy": 1}}, "dryy"),
        ({"prompt": "a", "chain": ["top_k", "nothing"]}, "nothing"),
        ({"prompt": "a", "options": {"extends": "x"}}, "There is no option 'extends'."),
        ({"prompt": "a", "options": {"preset": "x"}}, "by a row: presets are read once, before the first"),
        ({"prompt": "a", "options": 5}, "options is 5, but has to be an object"),
        ({"prompt": "a", "n": 2, "options": {"n": 3}}, "n is both a column of the row and in its options."),
        ({"prompt": "a", "n": 2, "temperature": 0}, "would give 2 equal texts"),
        ({"prompt": "a", "min_tokens": 9, "max_tokens": 5}, "asks for 9 tokens"),
        ({"prompt": "a", "top_k": 4, "stages": {"top_k": 5}}, "both set k of the stage top_k"),
        ({"prompt": "a", "system": "s"}, "needs `chat`"),
        ({"messages": MESSAGES, "raw": True}, "needs the chat template, but raw is set."),
        ({"messages": []}, "messages has to be a list of objects"),
        ({"messages": "[{"}, "This is not JSON"),
        ({"messages": ["hi"]}, "Message 1 is 'hi', but has to be an object"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "Message 1 has the role 'robot'"),
        ({"messages": [{"role": "user", "content": None}]}, "Message 1 has no content that is a text."),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "no text: image_url."),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": []}]}, "Message 1 has 'tool_calls'"),
        ({"messages": [{"role": "system", "content": "x"}], "system": "y"}, "Leave one of them out."),
    ]  # fmt: skip
    for columns, message in cases:
        assert message in reason(columns), columns


def test_every_option_is_either_a_rows_or_refused_by_name():
    for entry in OPTIONS:
        if entry.key in REQUEST_KEYS:
            continue
        assert reason({"prompt": "a", "options": {entry.key: 1}}).startswith(
            f"{entry.key} is set for the whole run, not by a row: "
        )
    assert {"temperature", "seed", "n", "stop", "max_tokens", "system", "chain", "stages"} <= REQUEST_KEYS


def test_a_record_that_was_not_read_is_a_failed_row():
    failure = Failure("InputError", "bad")
    (made,) = make_rows([Record(7, "f:1", failure=failure)], RowOptions(), jobs())
    assert (made.id, made.failure) == ("7", failure)


def test_ids_come_from_a_column():
    ids = RowOptions(id_column="key")
    assert row({"prompt": "a", "key": "x"}, ids).id == "x"
    assert row({"prompt": "a", "key": 12}, ids).id == "12"
    assert reason({"prompt": "a"}, ids) == "The row has no column 'key'. It has: prompt."
    assert reason({"prompt": "a", "key": ""}, ids) == "The id (column key) is missing."
    assert "There is no option 'id'" in reason({"prompt": "a", "key": "x", "id": "y"}, ids)
    assert "is [1], but has to be" in reason({"prompt": "a", "key": [1]}, ids)
    assert row({"prompt": "", "key": "x"}, ids).id == "x"


def test_a_column_id_names_its_row_without_a_flag():
    for value in ["a", 7, Cell("a")]:
        made = row({"id": value, "prompt": "x", "max_tokens": 3})
        assert (made.id, made.options, made.failure) == (str(value), {"max_tokens": 3}, None), value


def test_a_row_with_an_empty_id_is_named_by_its_place():
    for value in [None, Cell("")]:
        made = row({"id": value, "prompt": "x"})
        assert (made.id, made.failure) == (str(made.record.index), None), value


def test_where_columns_are_data_an_id_names_its_row_too():
    for options in [RowOptions(prompt_column="q"), RowOptions(template=read_template("{{ q }} {{ id }}"))]:
        made = row({"id": "a", "q": "x", "seed": 5}, options)
        assert (made.id, made.options, made.failure) == ("a", {}, None)
        assert row({"id": None, "q": "x"}, options).id == "3"
        assert row({"custom_id": "c", "body": {}, "q": "x", "id": 1}, options).id == "c"
        assert "`id_column`" in reason({"id": 1.5, "q": "x"}, options)


def test_an_empty_name_of_the_column_of_ids_takes_the_index():
    for columns, more in [
        ({"id": "a", "q": "x"}, {"prompt_column": "q"}),
        ({"id": "a", "prompt": "x"}, {}),
        ({"custom_id": "a", "body": {"messages": MESSAGES}}, {}),
    ]:
        made = row(columns, RowOptions(id_column="", **more))
        assert (made.id, made.failure) == ("3", None), columns


def test_wrong_names_of_columns_are_told_from_wrong_values():
    cases = [
        ({"text": "a"}, RowOptions()),
        ({"prompt": "a", "label": 1}, RowOptions()),
        ({"prompt": "a", "model": "x"}, RowOptions()),
        ({"prompt": "a"}, RowOptions(id_column="key")),
        ({"q": "a"}, RowOptions(prompt_column="question")),
        ({"q": "a"}, RowOptions(template=read_template("{{ question }}"))),
        ({"q": "a"}, RowOptions(template=read_template("{{ row['question'] }}"))),
    ]
    for columns, options in cases:
        assert row(columns, options).failure.is_of_columns, (columns, options)


def test_wrong_values_are_no_wrong_names():
    for columns in [{"prompt": ""}, {"prompt": "a", "temperature": -1}, {"prompt": 5}]:
        assert not row(columns).failure.is_of_columns, columns


def test_with_a_prompt_column_all_else_is_data_and_options_stand_in_an_object():
    options = RowOptions(prompt_column="question")
    columns = {"question": "a", "seed": "data", "n": 9, "options": {"n": 2}}
    assert (row(columns, options).prompt, row(columns, options).options) == ("a", {"n": 2})
    assert row({"question": MESSAGES, "options": ["A", "B"]}, options).messages == tuple(MESSAGES)
    assert row({"question": "a", "options": Cell('{"n": 3}')}, options).options == {"n": 3}
    assert reason({"q": "a"}, options) == "The row has no column 'question'. It has: q."
    assert reason({"question": None}, options) == "The prompt (column question) is null."
    assert "There is no option 'm'" in reason({"question": "a", "options": {"m": 1}}, options)


def test_kept_columns_may_be_data_but_options_stay_options():
    options = RowOptions(keep_input=True)
    assert row({"prompt": "a", "label": 1, "n": 2}, options).options == {"n": 2}


def test_cells_are_read_as_what_the_option_takes():
    first = cells(prompt="5", seed="7", temperature="0.5", max_time="", stop="[", ban='["a", "b"]')
    more = cells(stop_id="3", ignore_eos="True", sampler="multinomial", stages='{"top_k": 3}')
    made = row({**first, **more})
    assert made.failure is None
    assert made.prompt == "5"
    assert made.options == {
        "seed": 7, "temperature": 0.5, "stop": "[", "ban": ["a", "b"], "stop_id": 3, "ignore_eos": True,
        "sampler": "multinomial", "stages": {"top_k": 3},
    }  # fmt: skip
    assert "temperature" in reason(cells(prompt="a", temperature="warm"))


def test_a_template_makes_the_prompt_of_columns():
    options = RowOptions(template=read_template("{{ a }} & {{ row['b c'] | upper }}\n"))
    assert row({"a": 1, "b c": "x", "temperature": "data"}, options).prompt == "1 & X\n"


def test_a_template_is_a_text_or_a_file(tmp_path):
    path = tmp_path / "prompt.j2"
    path.write_text("Say {{ x }}\n")
    assert read_template(str(path)).render({"x": 1}) == "Say 1"
    with pytest.raises(UsageError, match=r"has no \{\{ \}\} in it"):
        read_template(str(tmp_path / "none.j2"))
    with pytest.raises(UsageError, match="`template`, line 2: this is not a Jinja template"):
        read_template("{{ x }}\n{% if %}")
    with pytest.raises(UsageError, match="both define the prompt"):
        RowOptions(template=read_template("{{ x }}"), prompt_column="y")


def test_a_row_overrides_the_run_and_shares_its_seed():
    made = jobs(temperature=0.9, max_tokens=9)
    job = made.job({"temperature": 0.2, "stages": {"top_k": 3}, "stop": ["a"]})
    assert job.chain.get("temperature").temperature == 0.2
    assert [entry.origin for entry in job.assembly.of_stage("top_k")] == ["row"]
    assert (job.limits.max_tokens, job.stops.strings, job.seed) == (9, ("a",), 1)
    assert made.job({}) is made.base
    assert made.job({"seed": 5}).seed == 5
    assert made.job({"seed": 6}).assembly is made.job({"seed": 7}).assembly


def test_the_seed_of_a_run_that_chose_one_is_that_of_all_its_rows():
    made = row_jobs(resolve())
    assert made.job({"n": 2}).seed == made.job({"n": 3}).seed == made.base.seed


def test_messages_go_through_the_chat_template_with_the_runs_system_message():
    made = jobs(chat=True, system="Be brief.")
    (plain,) = make_rows([Record(0, "", {"prompt": "a"})], RowOptions(), made)
    system = {"role": "system", "content": "Be brief."}
    assert conversation(plain, made.base) == (system, {"role": "user", "content": "a"})
    own = [{"role": "system", "content": "Mine."}, *MESSAGES]
    assert conversation(row({"messages": own}), made.base) == tuple(own)
    assert conversation(row({"prompt": "a"}), jobs().base) == ()
    chat = jobs().job({}, is_chat=True)
    assert conversation(row({"messages": MESSAGES}), chat) == tuple(MESSAGES)
    assert "raw is set" in reason({"messages": MESSAGES}, raw=True)
