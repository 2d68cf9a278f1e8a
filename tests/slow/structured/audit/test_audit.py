"""The audit says what is enforced, keyword by keyword, and never more than is so."""

import json
import random

from gencli.structured.backend_choice import candidate
from gencli.structured.schema_errors import SchemaError
from scripts.measure_schemas import BACKENDS, cases, claim, is_wrong, observed
from tests.structured.probes.acceptor import Refused, acceptor
from tests.structured.random_schemas import VALUES, drawn, is_valid

SAMPLE = [case for index, case in enumerate(cases()) if index % 6 == 0]


def test_the_audit_never_claims_too_much_on_the_corpus():
    for rewrite in [False, True]:
        for backend in BACKENDS:
            wrong = []
            for case in SAMPLE:
                one = candidate(case.schema, backend, rewrite=rewrite)
                seen = observed(backend, json.loads(one.variant.constraint.text), case)
                if is_wrong(claim(one), seen):
                    wrong.append((case.name, claim(one), seen))
            assert wrong == [], (rewrite, backend)


def test_the_audit_never_claims_too_much_on_drawn_schemas():
    for backend in BACKENDS:
        rng = random.Random(7)
        told = [wrongly_told(backend, drawn(rng)) for _ in range(150)]
        assert [case for case in told if case] == [], backend


def wrongly_told(backend, schema):
    """The schema, if an invalid value is accepted though the audit knows of nothing that is left open."""
    try:
        one = candidate(schema, backend, extra=True)
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
