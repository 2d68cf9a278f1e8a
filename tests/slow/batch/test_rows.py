"""Rows of records, and their watermark keys."""

import json
from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from gencli.batch.batch_records import Record
from gencli.batch.batch_rows import RowOptions, make_rows
from gencli.config.job import REQUEST_KEYS
from gencli.runtime.model_loading import load_tokenizer
from gencli.templates import chat_templates as renderer_module
from gencli.templates.chat_templates import MAX_PROMPT
from gencli.templates.prompt_templates import read_template
from gencli.watermark_detector import detect, scorer_of
from gencli.watermark_keys import read_key_file
from tests.batch.test_formats import VALUES
from tests.batch.test_rows import KEYS, base, cells, jobs, keys, reason, texts

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
    assert made.failure or made.prompt or made.messages
    assert not (made.failure and made.options)
    assert json.loads(json.dumps(dict(made.options))) == made.options


def test_a_template_that_does_not_end_is_the_error_of_its_row(monkeypatch):
    monkeypatch.setattr(renderer_module, "SECONDS", 0.5)
    endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    options = RowOptions(template=read_template(endless))
    assert "did not end within" in reason({"title": "x"}, options)


def check_detection(kind, bench, keys):
    files = {name: bench.folder / "keys" / f"{name}=1.key" for name in KEYS}
    for name, file in files.items() if kind == "kgw" else ():  # a small model has few choices to prefer from
        file.write_text(f"{{key: {KEYS[name]}, bias: 4}}")
    rows = [{"prompt": text, "watermark": kind, "watermark_key": name}
            for text, name in product(["Once upon a time", "One winter, a fox", "The"], KEYS)]  # fmt: skip
    bench.write(rows)
    done = bench.call(bench.input, "-o", bench.output, "--seed", "1", "--max-tokens", "150", "--dtype",
                      "float32", "--ignore-eos", "--temperature", "1.5", *keys)  # fmt: skip
    assert done.code == 0, done.err
    tokenizer = load_tokenizer("tiny")
    scorers = {name: scorer_of(read_key_file(kind, str(file)), vocab=2048) for name, file in files.items()}
    for row, text in zip(rows, texts(bench), strict=True):
        ids = tokenizer.encode(text, special=False)
        verdicts = {name: detect(scorer, ids).verdict for name, scorer in scorers.items()}
        assert verdicts == {name: "marked" if name == row["watermark_key"] else "not marked" for name in KEYS}


def test_each_row_is_found_with_its_own_key_and_with_no_other(bench, keys):
    check_detection("kgw", bench, keys)


MARKED = [
    {"prompt": "Once upon a time", "watermark_key": "acme"},
    {"prompt": "Once upon a time", "watermark_key": "birch-2"},
    {"prompt": "One winter, a fox"},
    {"prompt": "One winter, a fox", "watermark": "none"},
    {"prompt": "The", "watermark_key": "acme", "n": 2},
    {"prompt": "The", "watermark": "synthid", "watermark_key": "birch-2"},
]


def test_a_row_has_the_text_of_a_batch_with_its_key_alone(bench, keys, base, tmp_path):
    bench.write(MARKED)
    assert bench.run(*base, *keys, "--max-batch", "3").code == 0
    mixed, files = texts(bench), {name: tmp_path / "keys" / f"{name}=1.key" for name in KEYS}
    assert mixed[0] != mixed[1]
    bench.write([{key: row[key] for key in row if key != "watermark_key"} for row in MARKED])
    for index, file in enumerate((files["acme"], files["birch-2"], base[-1], base[-1], files["acme"])):
        alone = ("--watermark", "kgw", "--watermark-key", file, "--shard", f"{index}/6", "--overwrite")
        assert bench.run(*alone).code == 0
        assert texts(bench) == [mixed[index]]


def test_drafts_and_interruptions_change_no_text(bench, keys, base):
    bench.write(MARKED)
    assert bench.run(*base, *keys, "--keep-journal", "--no-timings").code == 0
    wanted, lines = bench.output.read_bytes(), bench.journal.read_bytes().splitlines(keepends=True)
    bench.journal.write_bytes(b"".join(lines[:3]))
    bench.output.unlink()
    assert bench.run(*base, *keys, "--resume", "--no-timings").code == 0
    assert bench.output.read_bytes() == wanted
    before = texts(bench)
    assert bench.run(*base, *keys, "--draft", "ngram", "--overwrite").code == 0
    assert texts(bench) == before


def test_a_batch_with_other_keys_does_not_go_on(bench, keys, base, tmp_path):
    for change in ("content", "fewer", "name"):
        bench = bench.fresh()
        bench.write(MARKED[2:4])
        assert bench.run(*base, *keys, "--keep-journal").code == 0, change
        if change == "content":
            (tmp_path / "keys" / "acme=1.key").write_text("43")
        elif change == "name":
            keys[1] = keys[1].replace("acme=", "maple=", 1)
        flags = keys[:2] if change == "fewer" else keys
        assert "--named-key was {'acme': '#" in bench.refused(*base, *flags, "--resume"), change


def test_no_result_has_a_key_or_its_file(bench, keys, base):
    wrong = [
        {"prompt": "a", "watermark_key": "oak"},
        {"prompt": "a", "watermark_key": KEYS["acme"]},
        {"prompt": "a", "watermark_key": ["acme"]},
        {"prompt": "a", "watermark_key": "acme=base.key"},
        {"prompt": "a", "watermark": "none", "watermark_key": "acme"},
        {"prompt": "a", "watermark": "gumbel", "watermark_key": "acme", "n": 2},
    ]
    bench.write([*MARKED, *wrong])
    done = bench.run(
        *base, *keys, "--summary", bench.folder / "sum.json", "--trace", bench.folder / "t.jsonl"
    )
    assert done.code == 7
    said = [str(result["error"]) for result in bench.results[len(MARKED) :]]
    unknown = "watermark_key names no key of this batch, whose keys are acme, birch-2."
    assert all(unknown in text for text in said[:4])
    assert "there is no watermark" in said[4]
    assert "the texts would begin alike" in said[5]
    files = ("out.jsonl", "out.jsonl.journal", "sum.json", "t.jsonl")
    told = done.err + "".join((bench.folder / name).read_text() for name in files)
    assert not [text for text in (*map(str, KEYS.values()), "1.key", "base.key") if text in told]
    assert told.count('"key": "#') > len(MARKED), "fingerprints stand for the keys"
