"""Example parameters for checks (those of the built-in stages, guesses from the types for others),
`ToyVocabulary` with the difficult cases of real ones, and hostile grammars that a back end has to
survive.
"""

from __future__ import annotations

import json
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from processors.catalog import STAGES
from processors.errors import ParamError
from processors.params import Params, describe

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {stage.Params: stage.examples() for stage in STAGES}


def examples(params: type[Params]) -> tuple[Params, ...]:
    """Return parameters that switch a stage on: from the table, else guesses that vary one field at a time.

    ParamError if no guess is accepted.
    """
    if params in EXAMPLES:
        return EXAMPLES[params]
    fields = {name: tuple(_guesses(field["type"])) for name, field in describe(params).items()}
    on = [built for value in fields[params.main()] if (built := _built(params, {params.main(): value}))]
    main = {params.main(): getattr(on[0], params.main())} if on else {}
    others = [
        _built(params, main | {name: value})
        for name, values in fields.items()
        if name not in main
        for value in values
    ]
    guessed = tuple(dict.fromkeys([*on, *filter(None, others)]))
    if not guessed:
        raise ParamError(f"No example of {params.__name__} could be guessed. Pass params=[...].")
    return guessed


def _built(params: type[Params], values: dict[str, Any]) -> Params | None:
    try:
        built = params.from_mapping(values)
    except ParamError:
        return None
    return None if built.is_off() else built


def _guesses(hint: Any) -> Iterator[Any]:
    simple: dict[Any, tuple[Any, ...]] = {
        float: (0.5, 2.0, -1.0, 0.05, 10.0),
        int: (1, 3, 10, 200),
        bool: (True, False),
        str: ("the", "a"),
    }
    origin, arguments = get_origin(hint), get_args(hint)
    if hint in simple:
        yield from simple[hint]
    elif origin is Literal:
        yield from arguments
    elif origin is tuple:
        inner = [next(_guesses(argument), None) for argument in arguments if argument is not Ellipsis]
        yield tuple(inner)
    elif origin in (Union, types.UnionType):
        for argument in arguments:
            yield from _guesses(argument)


_SPECIAL = ("<s>", "</s>", "<|user|>")
_WORDS = (
    *(" the", "the", "th", " cat", "cat", "at", " sat", "he c", "aba", "ab", "ba", "aa"),
    *("\n\n", '{"', '":', "é", "éa", "😀", " 😀", "日本", "</"),
)
_PIECES = (b"\xf0\x9f", b"\x98\x80", b"a\xc3", b"\xa9b")  # parts of UTF-8 characters


class ToyVocabulary:
    """Three special ids, some words, parts of characters, and all 256 bytes, so that any text can be encoded.

    Ids 0, 1, 2 are <s>, </s> and <|user|>; `eos_ids` is (1,).
    """

    eos_ids: tuple[int, ...] = (1,)

    def __init__(self) -> None:
        singles = (bytes([byte]) for byte in range(256))
        self._token_bytes = (*[b""] * len(_SPECIAL), *map(str.encode, _WORDS), *_PIECES, *singles)
        self._ids = {data: token for token, data in enumerate(self._token_bytes) if data}

    @property
    def vocab_size(self) -> int:
        return len(self._token_bytes)

    @property
    def special_ids(self) -> frozenset[int]:
        return frozenset(range(len(_SPECIAL)))

    @property
    def token_bytes(self) -> Sequence[bytes]:
        """The bytes that each id adds to the text."""
        return self._token_bytes

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Return the ids of a text, by greedy longest match; with `special`, <s> in front."""
        data, ids = text.encode(), [0] if special else []
        longest = max(map(len, self._ids))
        while data:
            size = next(n for n in range(longest, 0, -1) if data[:n] in self._ids)
            ids.append(self._ids[data[:size]])
            data = data[size:]
        return ids

    def decode(self, ids: Sequence[int]) -> bytes:
        """Return the bytes of the ids; special ids add none."""
        return b"".join(self._token_bytes[token] for token in ids)


_HUGE = 1_000_000_000
_LEVELS = 10_000


def _schema(**keywords: object) -> str:
    return json.dumps(keywords)


def _nested(opening: str, inside: str, closing: str, levels: int = _LEVELS) -> str:
    return opening * levels + inside + closing * levels


def _large_schema() -> str:
    fields = ",".join(f'"field {n:06}": {{"type": "string", "title": "a field"}}' for n in range(370_000))
    return f'{{"type": "object", "properties": {{{fields}}}}}'


def _doubling_refs() -> str:
    levels: dict[str, object] = {
        f"level{n}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/level{n + 1}"}] * 2, "minItems": 2}
        for n in range(40)
    }
    return _schema(**{"$ref": "#/$defs/level0", "$defs": {**levels, "level40": {"type": "null"}}})


def _many_unions() -> str:
    unions = [{"anyOf": [{"minLength": n}, {"maxLength": 100 + n}]} for n in range(24)]
    return _schema(type="string", allOf=unions)


def _slow_schema() -> str:
    """Return a schema of 60 long bounded patterns, which takes minutes with a vocabulary of 150k ids."""
    field = {"type": "string", "pattern": "^([A-Za-z]{1,60}[ -]){1,60}[0-9]{1,60}$"}
    return _schema(
        type="object",
        properties={
            f"field{n}": {**field, "pattern": field["pattern"].replace("60", f"{60 + n}")} for n in range(60)
        },
        required=[f"field{n}" for n in range(60)],
    )


_REGEX: dict[str, str] = {
    "catastrophic": r"(x+x+)+y",
    "exponential automaton": r"[ab]*a[ab]{30}",
    "nested repeats": r"((a{0,100}){0,100}){0,100}",
    "huge repeat": "a{1000000000}",
    "huge optional repeat": "(ab?){0,1000000000}",
    "long forced text": "(a?){5000}a{5000}",
    "deep groups": _nested("(", "a", ")"),
    "unicode classes": r"[\p{L}\p{N}]{1,3000}",
    "no text": r"[^\s\S]",
}

_EBNF: dict[str, str] = {
    "left-recursive": 'root ::= root "a" | "b"',
    "only itself": "root ::= root",
    "itself or nothing": 'root ::= root root | ""',
    "never ends": 'root ::= "a" root',
    "empty": "",
    "no such rule": "root ::= other",
    "huge repeat": 'root ::= "a"{1000000000}',
    "nested repeats": 'root ::= ((("a"{0,100}){0,100}){0,100}){0,100}',
    "ambiguous": 'root ::= root root | root root root | "a"',
    "deep groups": "root ::= " + _nested("(", '"a"', ")"),
    "long chain": "root ::= r0\n"
    + "".join(f'r{n} ::= "a" r{n + 1} | "b"\n' for n in range(50_000))
    + 'r50000 ::= "c"',
}

_SCHEMAS: dict[str, Callable[[], str]] = {
    "deep schema": lambda: _nested('{"type": "array", "items": ', '{"type": "null"}', "}"),
    "deep constant": lambda: _nested('{"const": [', "1", "]}", 1).replace("1", _nested("[", "1", "]")),
    "recursive schema": lambda: _schema(type="array", items={"$ref": "#"}),
    "itself": lambda: _schema(**{"$ref": "#"}),
    "cycle of references": lambda: _schema(
        **{"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    ),
    "endless document": lambda: _schema(
        type="object", properties={"next": {"$ref": "#"}}, required=["next"], additionalProperties=False
    ),
    "doubling references": _doubling_refs,
    "many unions": _many_unions,
    "20 MB": _large_schema,
    "a million choices": lambda: _schema(enum=[f"choice {n}" for n in range(1_000_000)]),
    "huge maxItems": lambda: _schema(type="array", items={"type": "null"}, maxItems=_HUGE),
    "huge minItems": lambda: _schema(type="array", items={"type": "null"}, minItems=_HUGE),
    "huge maxLength": lambda: _schema(type="string", maxLength=_HUGE),
    "huge minLength": lambda: _schema(type="string", minLength=_HUGE),
    "huge minProperties": lambda: _schema(type="object", minProperties=_HUGE),
    "huge number": lambda: f'{{"type": "integer", "minimum": 1{"0" * 4000}}}',
    "tiny multipleOf": lambda: '{"type": "number", "multipleOf": 1e-300}',
    "hours to compile": _slow_schema,
    **{
        f"pattern: {name}": lambda pattern=pattern: _schema(type="string", pattern=f"^{pattern}$")  # type: ignore[misc]
        for name, pattern in _REGEX.items()
    },
}

_LARK = {
    name: text.replace("root", "start").replace(" ::=", ":").replace('| ""', "|")
    for name, text in _EBNF.items()
}

HOSTILE: dict[tuple[str, str], Callable[[], str]] = {
    **{("json_schema", name): make for name, make in _SCHEMAS.items()},
    **{("regex", name): lambda text=text: text for name, text in _REGEX.items()},  # type: ignore[misc]
    **{("ebnf", name): lambda text=text: text for name, text in _EBNF.items()},  # type: ignore[misc]
    **{("lark", name): lambda text=text: text for name, text in _LARK.items()},  # type: ignore[misc]
}
