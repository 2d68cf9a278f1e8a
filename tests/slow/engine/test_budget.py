"""Near the limit of tokens a document is brought to its end; beyond it, completed where that is asked for."""

import json
from dataclasses import replace

from gencli.core.request import Limits
from tests.engine.harness import Error, generate
from tests.engine.test_jump import off, record, tokens_of

LISTS = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "items": {"type": "array", "items": {"type": "string"}},
        "note": {
            "type": "object",
            "properties": {key: {"type": "string"} for key in ("first", "second", "third")},
            "required": ["first", "second", "third"],
        },
    },
    "required": ["text"],
}


def lists(seed, max_tokens, **rest):
    return record(f"r{seed}", seed=seed, schema=LISTS, max_tokens=max_tokens, **rest)


def is_document(text):
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def check_ends(max_tokens, backend):
    ends = generate([lists(seed, max_tokens, backend=backend) for seed in range(12)])
    assert {(end.reason, end.document, is_document(end.text)) for end in ends.values()} <= {
        ("grammar", "over", True),
        ("eos", "over", True),
        ("length", "complete", True),
    }, (max_tokens, backend)


def test_a_document_that_can_be_ended_in_time_is():
    for case in ((24, "xgrammar"), (40, "llguidance"), (160, "xgrammar")):
        check_ends(*case)


PATTERNS = (
    {"format": "email"},
    {"pattern": "^a.*b$"},
    {"pattern": "^[a-z]+@[a-z]+[.]com$"},
    {"minLength": 4},
)


def strings(seed, pattern, max_tokens, **rest):
    schema = {"type": "array", "items": {"type": "string", **pattern}, "minItems": 1}
    return record(f"r{seed}", seed=seed, schema=schema, max_tokens=max_tokens, **rest)


def check_strings(pattern, backend, limits):
    ends = generate([strings(seed, pattern, limit, backend=backend) for seed, limit in enumerate(limits)])
    assert {end.document for end in ends.values()} <= {"over", "complete"}, (pattern, backend)


def check_company(rows):
    """Neighbours and drafts change nothing."""
    together = tokens_of(rows, max_batch=3)[:2]
    assert tokens_of(off(rows), max_batch=2)[:2] == together
    alone = [tokens_of([one])[0] for one in rows]
    assert {key: ids for found in alone for key, ids in found.items()} == together[0]


def test_strings_with_a_pattern_are_brought_to_their_end():
    check_strings(PATTERNS[0], "xgrammar", (16, 40))
    check_strings(PATTERNS[1], "llguidance", (17, 60))


def test_the_way_to_the_end_does_not_depend_on_drafts_or_neighbours():
    check_company([lists(seed, 40) for seed in range(4)])


def test_without_the_budget_in_view_documents_are_cut_and_far_from_the_limit_it_changes_nothing():
    free = {"in_budget": False}
    cut = generate([lists(seed, 40, grammar=free) for seed in range(12)])
    assert sum(end.document == "open" for end in cut.values()) > 6
    in_view, not_in_view = (
        [record(f"r{seed}", seed=seed, max_tokens=900, grammar=grammar) for seed in range(4)]
        for grammar in (None, free)
    )
    assert tokens_of(in_view)[:2] == tokens_of(not_in_view)[:2]


def test_a_cut_document_is_completed_if_asked_for():
    for limits in (Limits(3), Limits(12), Limits(31)):
        rows = [replace(lists(s, 1, grammar={"in_budget": False}), limits=limits) for s in range(12)]
        cut = generate(rows)
        completed = generate([replace(one, finish_open=True) for one in rows])
        for key, end in completed.items():
            assert is_document(end.text), limits
            if cut[key].document == "open":
                assert (end.reason, end.matched, end.document) == ("closed", "max_tokens", "complete"), limits
                assert end.text.startswith(cut[key].text.rstrip("\ufffd")), limits
                assert end.completion_tokens > cut[key].completion_tokens == limits.max_tokens
            else:
                assert end.text == cut[key].text, limits


def test_the_context_is_a_limit_as_well_and_a_text_without_a_grammar_is_cut():
    end = generate([lists(0, 5000, grammar={"whitespace": 0}, finish_open=True)])["r0", 0]
    assert not isinstance(end, Error)
    assert is_document(end.text)
    plain = replace(lists(0, 9), finish_open=True)
    plain = replace(plain, chain=replace(plain.chain, stages=plain.chain.stages[1:]))
    end = generate([plain])["r0", 0]
    assert (end.reason, end.matched, end.completion_tokens) == ("length", "max_tokens", 9)
