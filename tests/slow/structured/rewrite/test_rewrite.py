"""Each rewrite: the back end is wrong without it and right with it, and the values are the same."""

import json

from gencli.structured.backend_choice import candidate
from gencli.structured.rewrite_strings import LENGTHS
from gencli.structured.schema_validator import FORMATS
from tests.structured.probes.acceptor import acceptor
from tests.structured.rewrite.test_rewrite import CASES, LLGUIDANCE, S, verdict

CASES |= {name: ("llguidance", *case) for name, case in LLGUIDANCE.items()}


def test_the_back_end_is_wrong_without_it_and_right_with_it():
    for name in CASES:
        backend, schema, valid, invalid = CASES[name]
        found = candidate(schema, backend, extra=True)
        assert verdict(backend, schema, valid, invalid) != "right", name
        assert verdict(backend, json.loads(found.variant.constraint.text), valid, invalid) == "right", name
        assert found.is_exact, found.variant.audit.findings


ENDS = {
    "email": ("", "@a.de"),
    "idn-email": ("é", "@a.de"),
    "uri": ("https://a.de/", ""),
    "uri-reference": ("", ""),
    "json-pointer": ("/", ""),
    "relative-json-pointer": ("1/", ""),
    "duration": ("P1", "D"),
}


def test_a_format_does_not_go_on_for_ever_but_where_the_schema_gives_a_length():
    for name in sorted(LENGTHS):
        start, end = ENDS[name]
        within, over = (start + "1" * (count - len(start + end)) + end for count in (LENGTHS[name], 3_000))
        assert FORMATS[name](within), name
        assert FORMATS[name](over), name
        for more, allowed in (
            ({}, [True, False]),
            ({"minLength": 9}, [True, False]),
            ({"maxLength": 3_000}, [True, True]),
        ):
            found = candidate({**S, "format": name, **more}, "llguidance")
            check = acceptor("llguidance", json.loads(found.variant.constraint.text))
            assert [check(json.dumps(text, ensure_ascii=False)) for text in (within, over)] == allowed, name
            assert found.is_exact, name
