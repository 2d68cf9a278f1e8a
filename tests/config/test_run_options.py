"""One declaration gives flag, help, variable, key, schema and docs row; every number has both bounds."""

import csv
import runpy
from typing import Annotated, get_args, get_origin, get_type_hints

import pytest
from batch import batch
from grammar import grammar
from jsonschema import Draft202012Validator
from sampler import sampler
from speculate import speculate
from stages import stages
from step import step
from typer.main import get_command

from gencli.batch.batch_options import OWN
from gencli.cli.app import make_app
from gencli.cli.commands.bench import runs
from gencli.cli.commands.models import PAGE
from gencli.cli.usage import command_help, describe_option
from gencli.config.option import Option
from gencli.config.presets import KEYS, STRUCTURE, json_schema, unknown_key
from gencli.config.run_options import OPTIONS, option
from gencli.config.settings import environment_layer
from gencli.errors import UsageError
from processors.catalog import BUILTIN
from processors.params import MOST, describe
from scripts.compat_docs import PAGE as COMPAT_PAGE
from scripts.compat_docs import TABLE, TITLES, page
from tests.cli.conftest import ROOT
from tests.helpers.profiles import PROFILES

SCRIPT = runpy.run_path(str(ROOT / "scripts" / "config_docs.py"))
SCHEMA = json_schema()


def test_pages_are_what_the_declarations_give():
    for file, make in SCRIPT["PAGES"].items():
        page = (ROOT / "docs" / file).read_text(encoding="utf-8")
        assert page == make(), f"run scripts/config_docs.py: {file}"


@pytest.fixture(scope="module")
def flags():
    run = get_command(make_app(["run"])).commands["run"]
    return {flag for parameter in run.params for flag in (*parameter.opts, *parameter.secondary_opts)}


def test_an_option_has_flag_help_variable_key_schema_and_docs(flags):
    rows, listed = SCRIPT["options_page"](), command_help()
    for entry in OPTIONS:
        assert set("/".join(entry.names).split("/")) <= flags, entry
        assert entry.help.endswith("."), entry
        assert entry.flag in listed, entry
        assert environment_layer({entry.variable: ""}).values == {}, entry  # it is known
        assert f"| `{entry.variable}` |" in rows, entry
        if entry.flag_only:
            assert entry.flag_only in rows, entry
            said = f"{entry.key} is a flag only, no key of a preset: {entry.flag_only}."
            assert said == unknown_key(entry.key), entry
        else:
            assert entry.key in KEYS or entry.key in STRUCTURE, entry
            described = SCHEMA["properties"][entry.key]["description"]
            assert described == STRUCTURE.get(entry.key, entry.help), entry
            assert describe_option(entry).replace("|", "\\|").replace("\\n", "\\\\n")[:40] in rows, entry


def test_a_stage_has_schema_and_docs():
    page = SCRIPT["stages_page"]()
    for spec in BUILTIN:
        assert f"## {spec.name}\n" in page, spec
        for field, about in describe(spec.params).items():
            assert f"| `{field}` |" in page, spec
            if spec.name in SCHEMA["$defs"]:
                declared = SCHEMA["$defs"][spec.name]["anyOf"][1]["properties"][field]
                assert declared["description"] == about["doc"], (spec, field)


@pytest.fixture(scope="module")
def validator():
    Draft202012Validator.check_schema(SCHEMA)
    return Draft202012Validator(SCHEMA)


# Whose ids are held against the vocabulary, and whose biases are any finite number or -inf.
PAIRS = {("bias", "bias"), ("sequence_bias", "biases")}


def has_both(bounds):
    return (bounds.ge is not None or bounds.gt is not None) and (
        bounds.le is not None or bounds.lt is not None
    )


def kinds(hint):
    """The plain types in an annotation."""
    return {hint} if get_origin(hint) is None else {kind for arg in get_args(hint) for kind in kinds(arg)}


def test_every_number_has_both_bounds():
    # Other numbers have to be finite, which bounds them.
    for spec in BUILTIN:
        fields = describe(spec.params)
        open_ended = [
            n for n, about in fields.items() if int in kinds(about["type"]) and not has_both(about["bounds"])
        ]
        assert [(spec.name, name) for name in open_ended if (spec.name, name) not in PAIRS] == [], spec
        assert all(
            spec.params.__dataclass_fields__[n].metadata["finite"] for n, about in fields.items()
            if float in kinds(about["type"]) and (spec.name, n) not in PAIRS
        ), spec  # fmt: skip

    for command in [batch, grammar, runs, sampler, speculate, stages, step]:
        found = 0
        for name, hint in get_type_hints(command, include_extras=True).items():
            if get_origin(hint) is Annotated and kinds(get_args(hint)[0]) & {int, float}:
                info = get_args(hint)[1]
                assert None not in (info.min, info.max), name
                found += 1
        assert found > 2, command


def is_number(entry: Option):
    """Whether the option takes a number; a text may have numbers in it."""
    found = kinds(entry.type)
    is_typed = str not in found and bool(found & {int, float})
    return is_typed or isinstance(entry.read and _read(entry, "1"), int)


def _read(entry, text):
    try:
        return entry.read(text)
    except Exception:
        return None


EVERY = {entry.key: entry for entry in (*OPTIONS, *OWN, *PAGE.options)}


def test_every_option_that_is_a_number_has_both_bounds():
    for key in EVERY:
        entry = EVERY[key]
        is_of_a_stage = entry.stage and kinds(entry.type) == {float}
        assert not is_number(entry) or is_of_a_stage or has_both(entry.bounds), key


def test_a_number_beyond_them_is_refused_by_name(run):
    for arguments, said in [
        (("--threads", "99999999"), "--threads is 99999999, but has to be a number >= 1 and <= 1024."),
        (("--top-k", "1" + "0" * 20), f"a number >= -1 and <= {MOST}."),
        (("--top-k", "9" * 50), "a number of more than 40 digits"),
        (("--top-k", "9" * 5000), "is not a whole number."),
        (("-n", "1000000000"), "-n is 1000000000, but has to be a number >= 1 and <= 1000000."),
        (("--max-batch", "9" * 20), "--max-batch is"),
        (("--seed", str(2**64)), "--seed is"),
        (("--stop-id", str(2**31)), "--stop-id is"),
        (("--allow-ids", "9" * 5000), "is not a token id"),
        (("--logit-bias", "9" * 60 + "=1"), "bias names the text"),
        (("--stage", "top_p:keep=" + "1" + "0" * 20), "keep is"),
        (("--stage", "frequency:window=" + "9" * 30), "window is"),
        (("--draft", "ngram", "--draft-tokens", "9" * 5000), "neither a whole number nor auto"),
        (("--max-time", "inf"), "--max-time is inf"),
        (("--guidance", "inf"), "--guidance is inf"),
        (("--guidance", "nan"), "--guidance is nan"),
    ]:
        done = run(*arguments, "--max-tokens", "2", "hi")
        assert done.code == 2, done.err
        assert said in done.err, arguments
        assert len(done.err) < 2000, arguments


def test_a_value_is_read_from_its_text_or_refused(gencli):
    for key, given, value in [
        ("length_decay", "30:1.05", (30, 1.05)),
        ("dry_breaker", ["\\n", "###"], ("\n", "###")),
        ("dry_breaker", ["none"], ()),
        (
            "sequence_bias",
            [" of the=-2", "42=1.5", "a=b=inf"],
            ((" of the", -2.0), (42, 1.5), ("a=b", float("inf"))),
        ),
    ]:
        assert option(key).value(given) == value, key

    for given in ["30", "30:", ":1.05", "-3:1.05", "x:1", "3:x"]:
        with pytest.raises(UsageError, match="not of the form START:FACTOR"):
            option("length_decay").value(given)

    result = gencli("run", "--dry-multiplier", "1", "--dry-breaker", "none", "--show-chain")
    assert (result.code, "breakers=[]" in result.out) == (0, True), result.err


def test_the_page_is_what_the_profiles_say_and_has_every_stage():
    assert page() == COMPAT_PAGE.read_text(encoding="utf-8"), "run scripts/compat_docs.py"

    with TABLE.open(encoding="utf-8", newline="") as file:
        stages = [row["stage"] for row in csv.DictReader(file)]
    assert {spec.name for spec in BUILTIN} - {"tail"} <= set(stages)
    assert len(stages) == len(set(stages))
    assert set(TITLES) <= set(PROFILES)
