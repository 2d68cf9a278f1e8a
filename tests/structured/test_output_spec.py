"""The specification of an output: planned, validated, thinking split off, parts selected."""

import re
from pathlib import Path

from gencli.errors import ConfigError, GenerationError, UsageError
from gencli.runtime.compiled_grammars import compile_plan
from gencli.structured.output_spec import (
    DOCUMENTS,
    KINDS,
    OutputValidator,
    PlanRequest,
    ThinkingSplit,
    ThinkingSplitter,
    split_thinking,
)
from gencli.structured.planning import plan_output
from gencli.structured.schema_errors import check_pointer, select
from processors.grammar.grammar_compiler import GrammarCompiler
from tests.helpers.refusal import refusal
from tests.processors.grammar.kit import env_of

SCHEMA = '{"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}'


def test_a_schema_is_planned_compiled_and_validated():
    spec = plan_output("json_schema", SCHEMA, PlanRequest(whitespace=0))
    compiler = GrammarCompiler(env_of("toy"))
    variant = compile_plan(spec.plan, compiler).variant
    compiler.close()
    assert variant == spec.plan.variants[0]
    assert variant.audit.is_exact

    validator = OutputValidator(spec)
    assert validator.validate('{"age": 3}').value == {"age": 3}
    assert validator.validate('{"age": "3"}').faults == ('/age: "3" is not of type "integer"',)
    assert not validator.validate('{"age": 3').is_valid


def test_documents_are_kinds_of_outputs():
    assert set(DOCUMENTS) < set(KINDS)
    assert plan_output("json", True).is_document
    assert not plan_output("regex", "a+").is_document


MARKER = "<</think>"
TEXTS = ["", "a<b", "hm</think>{}", "hm<</think>{}", "<<</think></think><</think>x", "a<</thin", "<</think>"]


def test_the_first_marker_splits():
    for text, thinking, result in [
        ("hm</t>{}", "hm</t>", "{}"),
        ("</t></t>x", "</t>", "</t>x"),
        ("hm", "hm", ""),
        ("", "", ""),
    ]:
        assert split_thinking(text, "</t>") == ThinkingSplit(thinking, result), text


def test_a_stream_splits_as_the_whole_text():
    for text in TEXTS:
        for size in [1, 2, 3, 7]:
            splitter = ThinkingSplitter(MARKER)
            pieces = [splitter.feed(text[at : at + size]) for at in range(0, len(text), size)]
            pieces.append(splitter.finish())
            whole = ThinkingSplit(
                "".join(piece.thinking for piece in pieces), "".join(piece.result for piece in pieces)
            )
            assert whole == split_thinking(text, MARKER), (text, size)
            assert splitter.is_over == (MARKER in text), (text, size)
    # Only what may begin the marker is held back.
    for fed, shown in [("abc", "abc"), ("ab<", "ab"), ("ab<<", "ab"), ("<<<", "<"), ("<</thinx", "<</thinx")]:
        assert ThinkingSplitter(MARKER).feed(fed) == ThinkingSplit(shown), fed
    assert "marker to constrain after is empty" in refusal(ConfigError, ThinkingSplitter, "")


DOCUMENT = {
    "name": 'Ä "q"\n',
    "tags": ["x", {"y": 1.5}],
    "a/b": None,
    "m~n": True,
    "": 0,
    "01": {},
    "none": [],
}


def test_a_pointer_selects_a_part():
    for pointer, text in [
        ("/name", 'Ä "q"\n'),
        ("/tags", '["x",{"y":1.5}]'),
        ("/tags/0", "x"),
        ("/tags/1/y", "1.5"),
        ("/a~1b", "null"),
        ("/m~0n", "true"),
        ("/", "0"),
        ("/01", "{}"),
    ]:
        assert select(DOCUMENT, pointer) == text, pointer
    assert (select([1, "a"], ""), select("a", "")) == ('[1,"a"]', "a")


def test_a_part_that_is_missing_is_answered_with_what_is_there():
    for pointer, part in [
        ("/age", "'name', 'tags'"),
        ("/tags/2", "at /tags is a list of 2"),
        ("/tags/-1", "at /tags is a list of 2"),
        ("/tags/00", "at /tags is a list of 2"),
        ("/tags/99999999999", "at /tags is a list of 2"),
        ("/tags/1/z", "at /tags/1 is an object with 'y'"),
        ("/tags/1/y/z", "1.5, which has no parts"),
        ("/01/a", "an empty object"),
        ("/none/0", "an empty list"),
    ]:
        assert re.search(part, refusal(GenerationError, select, DOCUMENT, pointer)), pointer
    many = {f"k{n}": n for n in range(100)}
    assert "'k11' and 88 more" in refusal(GenerationError, select, many, "/x")


def test_a_text_that_is_no_pointer_is_refused_before_the_run():
    for pointer in ["name", ".name", "a/b", "/a~2", "/a~"]:
        assert re.search("JSON pointer", refusal(UsageError, check_pointer, pointer)), pointer


ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "contributing" / "structure.md").read_text(encoding="utf-8")
SECTION = PAGE.partition("\n## From a schema")[2].partition("\n## ")[0]


def test_every_step_of_the_page_is_defined_in_its_file():
    steps = re.findall(r"\| (\w+)\([^\n]*\)? -> .*?  (\S+)$", SECTION, re.MULTILINE)
    assert len(steps) == 7
    for function, file in steps:
        path = ROOT / (file if "/" in file else f"gencli/structured/{file}.py")
        assert re.search(rf"^(?:def|class) {function}\b", path.read_text(encoding="utf-8"), re.MULTILINE), (
            file
        )


def test_the_example_of_the_page_runs(capsys):
    exec(re.search(r"```python\n(.*?)```", SECTION, re.DOTALL)[1], {})
    assert capsys.readouterr().out == ("xgrammar enforces all of this schema.\n{'name': 'Ada', 'age': 36}\n")
