"""Rows of records: prompts, ids, options, request lines of OpenAI, watermark keys; no row reads a file."""

import json
from itertools import product

import pytest

from gencli.batch.batch_records import Failure, Record
from gencli.batch.batch_rows import RowOptions, conversation, make_rows, response_line, row_jobs, row_layer
from gencli.batch.input_formats import TableCell
from gencli.config.job import REQUEST_KEYS
from gencli.config.run_options import OPTIONS
from gencli.config.settings import FLAG, resolve
from gencli.errors import UsageError
from gencli.templates.prompt_templates import read_template
from processors.params import MOST
from processors.registry import builtin_registry
from tests.batch.conftest import FAKE


def jobs(**flags):
    return row_jobs(resolve((FLAG, {"seed": 1, **flags})))


def row(columns, options=None, **flags):
    (made,) = make_rows([Record(3, "f:4", columns)], options or RowOptions(), jobs(**flags))
    return made


def cells(**columns):
    return {name: TableCell(value) for name, value in columns.items()}


def reason(columns, options=None, **flags):
    failure = row(columns, options, **flags).failure
    assert failure, "the row has no fault"
    return failure.message


def test_a_row_has_a_prompt_its_index_as_id_and_options_beside_it():
    made = row({"prompt": "a", "temperature": 0.5, "options": {"n": 2}, "max_tokens": None})
    assert (made.prompt, made.id, made.failure) == ("a", "3", None)
    assert made.options == {"temperature": 0.5, "n": 2}


MESSAGES = [{"role": "user", "content": "hi"}]


def test_a_row_whose_options_are_wrong_keeps_its_prompt():
    made = row({"prompt": "a", "top_q": 1})
    assert (made.prompt, made.options, bool(made.failure)) == ("a", {}, True)
    assert row({"prompt": "a", "top_p": 7}).prompt == "a"
    assert row({"messages": MESSAGES, "top_q": 1}).messages == tuple(MESSAGES)
    data = RowOptions(template=read_template("Say {{ word }}"))
    assert row({"word": "a", "options": {"top_q": 1}}, data).prompt == "Say a"
    asked = {"custom_id": "1", "url": "/v1/completions", "body": {"prompt": "a", "top_q": 1}}
    assert row(asked).prompt == "a"
    assert row({"prompt": ["a"], "top_q": 1}).prompt is None


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
        ({"prompt": TableCell("")}, "The prompt is empty."),
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
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "not text: image_url."),
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
    for value in ["a", 7, TableCell("a")]:
        made = row({"id": value, "prompt": "x", "max_tokens": 3})
        assert (made.id, made.options, made.failure) == (str(value), {"max_tokens": 3}, None), value


def test_a_row_with_an_empty_id_is_named_by_its_place():
    for value in [None, TableCell("")]:
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
    assert row({"question": "a", "options": TableCell('{"n": 3}')}, options).options == {"n": 3}
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


def line(url="/v1/chat/completions", method="POST", **body):
    content = {} if "prompt" in body or "messages" in body else {"messages": MESSAGES}
    return {"custom_id": "r1", "method": method, "url": url, "body": {"model": "gpt", **content, **body}}


def test_a_request_line_is_a_row():
    made = row(
        line(max_completion_tokens=9, temperature=0.5, top_p=0.9, n=2, seed=4, stop=["x"], user="u",
             frequency_penalty=0.1, presence_penalty=0.2, logit_bias={"42": -100}, stream=False,
             response_format={"type": "text"}, top_k=5, stop_token_ids=[7], logprobs=None)
    )  # fmt: skip
    assert made.failure is None
    assert (made.id, made.messages) == ("r1", tuple(MESSAGES))
    assert made.options == {
        "max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "n": 2, "seed": 4, "stop": ["x"],
        "frequency_penalty": 0.1, "presence_penalty": 0.2, "logit_bias": [[42, -100]], "top_k": 5,
        "stop_id": [7],
    }  # fmt: skip


def test_what_asks_for_nothing_is_left_out_as_by_the_server():
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    for fields in (
        {"tools": tools, "tool_choice": "none"},
        {"tools": [], "tool_choice": "auto"},
        {"verbosity": "medium", "reasoning_budget": -1},
    ):
        made = row(line(**fields))
        assert (made.failure, made.options) == (None, {}), fields
    assert row(line(tools=tools, tool_choice="auto")).options.keys() == {"tools", "tool_choice"}
    assert row(line(max_tokens=-1)).options == row(line(n_predict=-1)).options == {"max_tokens": MOST}
    assert "tool_choice needs tools" in reason(line(tool_choice="required"))


def test_a_completion_is_a_raw_prompt():
    made = row(line("/v1/completions", prompt="a"))
    assert (made.prompt, made.messages, made.failure) == ("a", (), None)


def test_a_field_that_does_not_work_is_named():
    cases = [
        (line(suffix="x"), "The field suffix of the body is not supported."),
        (line(stream=True), "stream is True, which a batch does not support."),
        (line(max_tokens=3, max_completion_tokens=4), "max_completion_tokens says 4, another field says 3"),
        (line(logit_bias=[1]), "logit_bias has to be an object of token ids, or of texts, and numbers."),
        (
            line(response_format={"type": "xml"}),
            "response_format has to be text, json_object, or json_schema",
        ),
        (line(temperature=-1), "temperature is -1"),
        (line(dtype="float16"), "The field dtype of the body is not supported."),
        (line("/v1/embeddings"), "The request is POST /v1/embeddings, but has to be POST"),
        (line(method="GET"), "The request is GET"),
        (line("/v1/completions"), "has to have prompt, and no other prompt."),
        (line(prompt="a"), "has to have messages, and no other prompt."),
        (line(messages="hi"), "This is not JSON"),
        ({**line(), "extra": 1}, "A request line has no field 'extra'"),
        ({"custom_id": "a", "url": "/v1/chat/completions"}, "The request's body has to be an object."),
        ({**line(), "custom_id": ""}, "The id (column custom_id) is missing."),
    ]
    for columns, message in cases:
        assert message in reason(columns), columns


def result(**changes):
    one = {
        "id": "r1", "prompt": "p", "text": "t", "finish_reason": "eos", "matched": None, "offset": None,
        "completion_tokens": 3, "error": None, "prompt_tokens": 2, "seed": 1, "model": "tiny",
    }  # fmt: skip
    return {**one, **changes}


def several():
    error = {"type": "EmptySupport", "message": "no token"}
    made = result(texts=["a", "b"], finish_reason=["length", "error"], matched=[None] * 2,
                  offset=[None] * 2, completion_tokens=[3, None], error=[None, error])  # fmt: skip
    del made["text"]
    return made


def test_a_result_is_a_response_with_choices_and_usage():
    made = response_line("r1", result())
    assert made["custom_id"] == "r1"
    assert made["error"] is None
    assert made["response"]["status_code"] == 200
    body = made["response"]["body"]
    assert body["choices"] == [{
        "index": 0, "message": {"role": "assistant", "content": "t", "refusal": None}, "logprobs": None,
        "finish_reason": "stop",
    }]  # fmt: skip
    assert body["usage"] == {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}
    json.dumps(made)


def test_samples_are_choices_and_one_that_failed_says_so():
    choices = response_line("r1", several())["response"]["body"]["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["length", "error"]


def test_a_row_without_any_text_is_an_error():
    error = {"type": "UsageError", "message": "too long"}
    made = response_line("r1", {"error": error})
    assert made["response"] is None
    assert made["error"] == {"code": "UsageError", "message": "too long"}


def test_a_row_cannot_have_a_file_read(tmp_path, monkeypatch):
    keys = ("json_schema", "grammar", "lark", "structural_tag", "tools")
    names = ("secret.json", "here", "/dev/zero", "some/where")
    monkeypatch.chdir(tmp_path)
    for name in names[:2]:
        (tmp_path / name).write_text("{}")
    for key, name in product(keys, names):
        with pytest.raises(UsageError, match=f"{key} names a file, which a row cannot read"):
            row_layer({key: name}, builtin_registry())


def test_a_row_gives_its_schema_as_an_object_or_as_text():
    cases = [
        {"type": "integer"}, '{"type": "integer"}', "name, age int", True, "age int\nnotes: as in a.json",
    ]  # fmt: skip
    for schema in cases:
        assert row_layer({"json_schema": schema}, builtin_registry()).values["json_schema"], schema


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
