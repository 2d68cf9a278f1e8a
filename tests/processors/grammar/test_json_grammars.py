"""JSON as Lark: bags and rows of members, and white space where people write it."""

import json
from itertools import product

import pytest
from llguidance import LLMatcher, LLTokenizer

from gencli.structured.backend_choice import choose
from gencli.structured.output_spec import PlanRequest
from gencli.structured.planning import plan_output
from processors.grammar.json_grammars import Bag, Brackets, in_a_row, spelled
from tests.processors.grammar.kit import compiled, vocabulary_of

SIGNS = 'COMMA: ","\nBEGIN: "["\nEND: "]"\nNO_ITEMS: "[]"\n'
LIST = Brackets("BEGIN", "END", "NO_ITEMS")


def accepting(rules):
    text = "start: r\n" + SIGNS + "".join(f"{name}: {body}\n" for name, body in rules.items())
    start = LLMatcher(LLTokenizer("byte"), LLMatcher.grammar_from_lark(text), log_level=0)
    assert not start.is_error(), start.get_error()

    def accept(members):
        matcher, data = start.deep_copy(), list(f"[{','.join(members)}]".encode())
        return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()

    return accept


def symbols(letters):
    return tuple(f'"{letter}"' for letter in letters)


def is_in(bag, members):
    """Whether the members are one of a bag's texts, by their number and that of each."""
    needed, once, many = ([symbol.strip('"') for symbol in part] for part in (bag.needed, bag.once, bag.many))
    counts = {letter: members.count(letter) for letter in {*needed, *once, *many}}
    return (
        bag.least <= len(members) <= (len(members) if bag.most is None else bag.most)
        and all(
            counts[letter] >= needed.count(letter)
            if letter in many
            else counts[letter] == needed.count(letter)
            for letter in needed
        )
        and all(counts[letter] <= 1 for letter in once)
    )


BAGS = [
    Bag(needed=symbols("ab"), once=symbols("cd")),
    Bag(needed=symbols("a"), many=symbols("b")),
    Bag(once=symbols("abc"), least=1, most=2),
    Bag(needed=symbols("a"), once=symbols("bc"), least=2),
    Bag(needed=symbols("ab"), once=symbols("c"), most=2),
    Bag(many=symbols("ab"), least=2, most=4),
    Bag(once=symbols("ab"), many=symbols("c"), least=2, most=3),
    Bag(needed=symbols("a"), once=symbols("b"), many=symbols("c"), least=3, most=4),
    Bag(needed=symbols("aa"), many=symbols("b"), least=3, most=5),
    Bag(needed=symbols("aaa"), many=symbols("ab"), most=4),
]


def test_a_bag_has_the_texts_that_it_says():
    for bag in BAGS:
        accept = accepting(spelled(bag, LIST, "r"))
        letters = sorted({symbol.strip('"') for symbol in (*bag.needed, *bag.once, *bag.many)})
        for count in range(6):
            for members in product(letters, repeat=count):
                assert accept(members) == is_in(bag, members), (bag, members)


def test_a_row_keeps_its_order():
    for many, needed in product(("", "x", "xy"), ("", "a", "bc", "abc")):
        accept = accepting(in_a_row([(f'"{one}"', one in needed) for one in "abc"], symbols(many), LIST, "r"))
        for count in range(5):
            for members in product(f"abc{many}", repeat=count):
                head = [one for one in members if one in "abc"]
                is_row = head == sorted(set(head)) and list(members[: len(head)]) == head
                assert accept(members) == (is_row and set(needed) <= set(head)), (many, needed, members)


BACKENDS = ("xgrammar", "llguidance")
SPACE = " \n\r\t"
NUMBER = {"type": "integer"}


def record(required=None, **properties):
    names = [*properties] if required is None else required
    return {"type": "object", "properties": properties, "required": names, "additionalProperties": False}


ORDER = record(
    items={"type": "array", "items": record(name={"type": "string"}, quantity=NUMBER), "minItems": 1},
    note=record([], a=NUMBER, b={"type": ["object", "null"]}),
    kind={"enum": ["x , y", [1, {"k": [2]}], {"a": 1, "b": []}]},
)

DOCUMENTS = [
    (ORDER, {"items": [{"name": "a , b : c", "quantity": 2}] * 2, "note": {}, "kind": [1, {"k": [2]}]}),
    (ORDER, {"items": [{"name": "", "quantity": 0}], "note": {"b": {"c": [1]}}, "kind": {"a": 1, "b": []}}),
    ({}, {"a": [1, {"b": []}, "x"], "c": {"d": None}, "e": {}}),
    (True, [[], {}, [[1, 2], {"a": True}]]),
    ({"type": "object"}, {"a": {"b": {"c": [1.5, "d"]}}}),
    ({"type": "object", "additionalProperties": NUMBER, "maxProperties": 2}, {"a": 1, "b": 2}),
    ({**record(a=NUMBER), "additionalProperties": True}, {"a": 1, "b": 2, "c": [3]}),
    (
        {"type": "object", "patternProperties": {"^x": NUMBER}, "additionalProperties": False},
        {"x1": 1, "x2": 2},
    ),
    ({"type": "array", "prefixItems": [NUMBER, {"type": "null"}], "items": False}, [1, None]),
    ({"anyOf": [NUMBER, record(a=NUMBER)]}, {"a": 1}),
    ({"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True}, ["b", "a"]),
    (
        {"$defs": {"t": record(["v"], v=NUMBER, t={"$ref": "#/$defs/t"})}, "$ref": "#/$defs/t"},
        {"v": 1, "t": {"v": 2, "t": {"v": 3}}},
    ),
]

STYLES = [{"indent": 2}, {"indent": 4}, {"separators": (", ", ": ")}, {"separators": (",", ":")}]


def grammar_of(backend, schema, whitespace):
    (variant,) = choose(schema, PlanRequest(backend, whitespace=whitespace)).variants
    return compiled_from(variant.constraint)


def compiled_from(constraint):
    return compiled(constraint.backend, constraint.kind, constraint.text, constraint.whitespace)


def reached(grammar, text):
    """The matcher behind a text; None if the text is refused."""
    matcher, tokens = grammar.matcher(), vocabulary_of().token_bytes
    ids = [tokens.index(bytes([byte])) for byte in text.encode()]
    return matcher if all(map(matcher.accept, ids)) else None


def allows(grammar, text):
    return reached(grammar, text) is not None


def is_whole(grammar, text):
    matcher = reached(grammar, text)
    return matcher is not None and matcher.is_complete()


@pytest.mark.parametrize("backend", BACKENDS)
def test_white_space_stands_behind_an_opening_a_comma_or_a_colon_and_before_a_closing(backend):
    row = {"type": "array", "items": NUMBER, "minItems": 2, "maxItems": 3}
    grammar = grammar_of(backend, record(["a", "b"], a=NUMBER, b=row, c=record(d={"type": "string"})), 8)
    whole = '{"a":2,"b":[1,2,3],"c":{"d":"e"}}'
    behind = {place + 1 for place, sign in enumerate(whole) if sign in "{[,:"}
    before = {place for place, sign in enumerate(whole) if sign in "]}"}
    for place, sign in product(range(len(whole) + 1), SPACE):
        expected = place in behind | before
        text = f"{whole[:place]}{sign}{whole[place:]}"
        if whole[:place].count('"') % 2 == 0:
            assert is_whole(grammar, text) == expected, text
    # Where nothing may be closed, white space is refused at once, and not only what would follow it.
    for begun in ('{"a"', '{"a":2', '{"a":2,"b":[1', '{"a":2,"b":[1,2],"c":{"d"'):
        assert not any(allows(grammar, begun + sign) for sign in SPACE), begun
    for begun, closing in (('{"a":2,"b":[1,2', "]"), ('{"a":2,"b":[1,2]', "}"), ('{"a":2,"b":[1,2]', "\t }")):
        assert all(allows(grammar, f"{begun}{sign}{closing}") for sign in SPACE), begun
        assert not any(allows(grammar, f"{begun}{sign},") for sign in SPACE), begun


@pytest.mark.parametrize("backend", BACKENDS)
def test_documents_as_people_and_programs_write_them_are_allowed(backend):
    for (schema, value), style in product(DOCUMENTS, STYLES):
        text = json.dumps(value, **style)
        assert is_whole(grammar_of(backend, schema, 32), text), (schema, text)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_longest_run_is_that_of_the_option(backend):
    for schema, value in DOCUMENTS:
        compact = json.dumps(value, separators=(",", ":"))
        none, single = (grammar_of(backend, schema, most) for most in (0, 1))
        assert is_whole(none, compact)
        assert not is_whole(none, json.dumps(value))
        assert is_whole(single, compact)
        assert is_whole(single, json.dumps(value))
        assert is_whole(single, json.dumps(value, indent=0)), value
        assert not is_whole(single, json.dumps(value, indent=1)), value


PAIR = record(a=NUMBER, b={"type": "array", "items": {}})
TAG = {"type": "tag", "begin": "<t>", "content": {"type": "json_schema", "json_schema": PAIR}, "end": "</t>"}
FREE = {"type": "triggered_tags", "triggers": ["<t>"], "tags": [TAG]}
TAGS = {"type": "structural_tag", "format": FREE}
TOOLS = [{"type": "function", "function": {"name": "f", "parameters": PAIR}}]
CALL = ('{"name": "f", "arguments": ', "}")

EMBEDDED = [
    ("xgrammar", "structural_tag", TAGS, "auto", ("x<t>", "</t>y")),
    ("xgrammar", "tools", TOOLS, "auto", CALL),
    ("llguidance", "tools", TOOLS, "auto", CALL),
    ("xgrammar", "tools", TOOLS, "required", CALL),
    ("llguidance", "tools", TOOLS, "required", CALL),
]


@pytest.mark.parametrize(("backend", "kind", "value", "choice", "around"), EMBEDDED)
def test_documents_in_tags_and_calls_have_the_same_white_space(backend, kind, value, choice, around):
    def allowed(text, whitespace):
        request = PlanRequest(backend=backend, tool_choice=choice, whitespace=whitespace)
        (variant,) = plan_output(kind, json.dumps(value), request).plan.variants
        return is_whole(compiled_from(variant.constraint), text.join(around))

    for text in ('{\n "a": 2,\t"b": [\n{"c": 1} ] \n}', '{"a":2,"b":[]}'):
        assert allowed(text, 8), text
    for text in ('{"a" :2,"b":[]}', '{"a":2 ,"b":[]}', '{"a":2,"b":[1\n,2]}', '{"a":2,"b":[{"c" :1}]}'):
        assert not allowed(text, 8), text
    if choice == "auto":  # a call that has to be made is one document, its frame included
        assert allowed('{"a":2,"b":[1,{"c":3}]}', 0)
        assert not allowed('{"a": 2,"b":[]}', 0)
        assert not allowed('{"a":2,"b":[1, 2]}', 0)


def test_grammars_of_users_keep_their_white_space():
    grammar = 'root ::= "a" whitespace{0, 3} ","\nwhitespace ::= [ ]'
    form = {"type": "sequence", "elements": [TAG, {"type": "grammar", "grammar": grammar}]}
    text = json.dumps({"type": "structural_tag", "format": form})
    assert is_whole(compiled("xgrammar", "structural_tag", text), '<t>{"a":1,"b":[]}</t>a  ,')
