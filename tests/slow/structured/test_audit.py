"""The audit never claims too much: of the corpus, drawn schemas, back ends as run, a model's documents."""

import json
import random

from gencli import LLM
from gencli.structured.backend_choice import candidate
from gencli.structured.flat_schema import SUPPORT
from gencli.structured.output_spec import PlanRequest
from gencli.structured.schema_errors import SchemaError
from processors.base import Env
from processors.grammar.grammar_backend import load_backend
from processors.testing import ToyVocabulary
from scripts.audit_table import TABLE, schemas, verdict
from scripts.measure_schemas import BACKENDS, cases, claim, is_wrong, observed
from tests.structured.probes.acceptor import VERSIONS, Refused, acceptor
from tests.structured.probes.probe import validator_of
from tests.structured.probes.removals import IDLE, removals
from tests.structured.probes.verdicts import PROBES, changes, is_telling, table
from tests.structured.random_schemas import VALUES, drawn, is_valid
from tests.structured.test_audit import refusing

SAMPLE = [case for index, case in enumerate(cases()) if index % 9 == 0]


def test_the_audit_never_claims_too_much_on_the_corpus():
    for rewrite in [False, True]:
        for backend in BACKENDS:
            wrong = []
            for case in SAMPLE:
                one = candidate(case.schema, backend, PlanRequest(rewrite=rewrite))
                seen = observed(backend, json.loads(one.variant.constraint.text), case)
                if is_wrong(claim(one), seen):
                    wrong.append((case.name, claim(one), seen))
            assert wrong == [], (rewrite, backend)


def test_the_audit_never_claims_too_much_on_drawn_schemas():
    for backend in BACKENDS:
        rng = random.Random(7)
        told = [wrongly_told(backend, drawn(rng)) for _ in range(100)]
        assert [case for case in told if case] == [], backend


def wrongly_told(backend, schema):
    """The schema, if an invalid value is accepted though the audit knows of nothing that is left open."""
    try:
        one = candidate(schema, backend, PlanRequest(extra=True))
    except SchemaError:
        return schema if any(is_valid(schema, value) for value in VALUES) else None
    if one.loose:
        return None
    try:
        accepts = acceptor(backend, json.loads(one.variant.constraint.text))
    except Refused:
        return schema if any(is_valid(schema, value) for value in VALUES) else None
    invalid = [value for value in VALUES if not is_valid(schema, value)]
    return schema if any(accepts(json.dumps(value, ensure_ascii=False)) for value in invalid) else None


RUN_SAMPLE = [case for index, case in enumerate(cases()) if index % 15 == 0]


def is_accepted(grammar, ids):
    matcher = grammar.matcher()
    return all(map(matcher.accept, ids)) and matcher.is_complete()


def test_the_back_end_of_a_run_does_what_the_probes_saw():
    tokenizer = ToyVocabulary()
    env = Env(tokenizer.vocab_size, tokenizer, tokenizer.eos_ids)

    def ids(value):
        return tokenizer.encode(json.dumps(value, ensure_ascii=False), special=False)

    for name in BACKENDS:
        backend = load_backend(name, env)
        for case in RUN_SAMPLE:
            constraint = candidate(case.schema, name).variant.constraint
            grammar = backend.compile(constraint)
            loose = any(is_accepted(grammar, ids(value)) for value in case.invalid)
            exact = not loose and all(is_accepted(grammar, ids(value)) for value in case.valid)
            seen = "loose" if loose else "exact" if exact else "tight"
            assert seen == observed(name, json.loads(constraint.text), case), (name, case.name)


def test_the_installed_back_end_is_as_recorded():
    check_shapes(4)


def check_shapes(step):
    """Probe the installed back ends with every `step`-th shape."""
    for backend in BACKENDS:
        recorded = {
            shape: SUPPORT[backend].shapes[shape] for shape in sorted(SUPPORT[backend].shapes)[::step]
        }
        probes = [probe for probe in PROBES if probe.shape in recorded or step == 1]
        changed = changes(table(backend, probes), recorded)
        assert not changed, (
            f"{backend} {VERSIONS[backend]} changed: run scripts/probe_backends.py and read the diff"
        )


MINDS = {
    "loose": lambda backend, schema: lambda text: True,
    "tight": lambda backend, schema: lambda text: False,
    "refused": refusing,
}


def test_a_back_end_that_changes_its_mind_about_any_keyword_is_found_out():
    for backend in BACKENDS:
        for mind in MINDS:
            recorded = {shape for shape, grade in SUPPORT[backend].shapes.items() if grade == "exact"}
            refusable = {probe.shape for probe in PROBES if probe.refuse and is_telling(probe)}
            expected = recorded & refusable if mind == "loose" else recorded
            changed = changes(table(backend, acceptor=MINDS[mind]), SUPPORT[backend].shapes)
            assert expected, (backend, mind)
            assert dict.fromkeys(expected, f"exact -> {mind}").items() <= changed.items(), (backend, mind)


def test_each_construct_of_a_shape_has_an_instance_that_only_it_refuses():
    shown = {}
    for probe in filter(is_telling, PROBES):
        refused = [json.loads(text) for text in probe.refuse if is_json(text)]
        for name, schema in removals(probe.shape, probe.schema):
            is_valid = validator_of(schema).is_valid
            shown[probe.shape, name] = shown.get((probe.shape, name)) or any(map(is_valid, refused))
    assert {construct for construct, is_shown in shown.items() if not is_shown} == IDLE


def is_json(text):
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def test_the_audit_of_a_schema_is_the_recorded_one():
    check_audits(4)


def check_audits(step):
    """Compare every `step`-th schema of the repository with its line in the recorded table."""
    recorded = TABLE.read_text(encoding="utf-8").splitlines()
    names = dict(schemas())
    lines = [f"{name}  {verdict(names[name])}" for name in [*names][::step]]
    added = [f"+ {line}" for line in sorted(set(lines) - set(recorded))]
    removed = [f"- {line}" for line in recorded if step == 1 and line not in lines]
    assert not added + removed, "\n".join(
        ["PYTHONPATH=. python scripts/audit_table.py writes it anew.", *(removed + added)[:40]]
    )


NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 3, "maxItems": 6}

PATTERNS = [
    r"^\p{Lu}{2}\P{L}{1,3}[\p{Script=Greek}\d]$",
    r"^a\b.{1,4}\bfoo\b.?$",
    r"^(?!.*\s)[\W\d]\S\D\W$",
    r"^x(?!\d\d)\w{3}(?=!)..$",
    "^[^a]{2,4}$",
]


def test_what_is_drawn_under_a_mask_that_enforces_all_is_valid():
    check_drawn(
        [
            ("xgrammar", NUMBERS),
            ("xgrammar", PATTERNS[0]),
            ("llguidance", NUMBERS),
            ("llguidance", PATTERNS[3]),
        ]
    )


def check_drawn(cases):
    """Draw documents at a high temperature. A schema that is a text is the pattern of a string."""
    with LLM("tiny", dtype="float32", max_batch=4) as llm:
        for backend, schema in cases:
            schema = {"type": "string", "pattern": schema} if schema in PATTERNS else schema
            out = llm.generate(
                ["a", "b", "c"],
                json_schema=json.dumps(schema),
                grammar_backend=backend,
                temperature=4.0,
                seed=3,
                max_tokens=48,
            )
            assert [result.samples[0].error for result in out] == [None] * 3, (backend, schema)
