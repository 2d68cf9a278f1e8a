"""Example parameters for checks (tables for built-in stages, guesses from the types for others),
`ToyVocabulary` with the difficult cases of real ones, and hostile grammars that a back end has to
survive.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, Union, get_args, get_origin

from processors.catalog.feedback import AdaptivePParams, MirostatParams, SkewParams
from processors.catalog.forcing import (
    ForceParams,
    LengthBoostParams,
    LengthDecayParams,
    ReasoningBudgetParams,
)
from processors.catalog.masks import (
    AllowedParams,
    BanParams,
    BeginSuppressParams,
    EosAboveParams,
    GrammarParams,
    IgnoreEosParams,
    MinTokensParams,
    SuppressParams,
    TailParams,
)
from processors.catalog.penalties import (
    BiasParams,
    DryParams,
    FrequencyParams,
    LzParams,
    NoRepeatNgramParams,
    PresenceParams,
    RepetitionParams,
    SequenceBiasParams,
)
from processors.catalog.truncation import (
    DynamicTemperatureParams,
    EdtParams,
    EpsilonParams,
    EtaParams,
    MinKParams,
    MinPParams,
    PLessParams,
    SmoothingParams,
    TemperatureParams,
    TfsParams,
    TopAParams,
    TopHParams,
    TopKParams,
    TopNSigmaParams,
    TopPParams,
    TypicalParams,
    XtcParams,
)
from processors.catalog.watermarks import GumbelMarkParams, KgwParams, SynthIdParams
from processors.errors import ParamError
from processors.params import Params, Secret, describe


def _choice(*texts: str, **options: Any) -> GrammarParams:
    return GrammarParams(json.dumps(texts), kind="choice", backend="trie", **options)


_KEY = Secret(15485863)
_KEYS = Secret((654, 400, 836, 123, 340, 443, 597, 160, 57, 29, 590, 639))

EXAMPLES: dict[type[Params], tuple[Params, ...]] = {
    TailParams: (TailParams(284), TailParams(40), TailParams(10_000)),
    AllowedParams: (AllowedParams((5,)), AllowedParams((9, 3, 200, 9)), AllowedParams(tuple(range(284)))),
    SuppressParams: (SuppressParams((0,)), SuppressParams((7, 5, 7))),
    BeginSuppressParams: (BeginSuppressParams((0,)), BeginSuppressParams((7, 5, 7))),
    BanParams: (
        BanParams(("cat",)),
        BanParams(("aba", "bab", "ab")),
        BanParams(("\n", "é")),
        BanParams(("😀", "the cat sat", "he")),
        BanParams(("ABA", "É"), ignore_case=True),
        BanParams(("ab", " the"), rewind=True),
    ),
    MinTokensParams: (MinTokensParams(1), MinTokensParams(4), MinTokensParams(100)),
    IgnoreEosParams: (IgnoreEosParams(True),),
    EosAboveParams: tuple(EosAboveParams(p) for p in (1e-300, 0.003, 0.999)),
    GrammarParams: (
        _choice(" sat. the cat the ca", " sat. the cat the ca😀", " sat. the cat"),
        _choice("a", "ab", "abab", "ababab", "the end"),
        _choice("\n", "\n\n", "\n\né", "é"),
        _choice("the cat", "the cat sat", "the", after=" the"),
        _choice("ab", after="a"),
        _choice("b", "ba", after="</"),
        _choice("the cat sat. the cat", "the cat sat on", canonical=False),
    ),
    ForceParams: (
        ForceParams(" the cat sat"),
        ForceParams(ids=(7, 7, 200)),
        ForceParams("😀é", at="text", after="at the"),
        ForceParams("\n\n", at="id", after_id=7),
        ForceParams("abab", at="tokens", after_tokens=2),
        ForceParams("a", at="tokens", after_tokens=10_000),
        ForceParams(" the", at="end"),
    ),
    ReasoningBudgetParams: (
        ReasoningBudgetParams(0, start="the", end=" cat"),
        ReasoningBudgetParams(1, start="a", end="b"),
        ReasoningBudgetParams(2, start="the", end="</", message=" sat\n"),
        ReasoningBudgetParams(0, start="\n", end="é"),
        ReasoningBudgetParams(2, start="é\n", end="aba", message="😀"),
        ReasoningBudgetParams(10_000),
    ),
    BiasParams: (BiasParams(((5, 2.5), (" the", -math.inf), (283, -1e300))), BiasParams((("cat", -100.0),))),
    SequenceBiasParams: (
        SequenceBiasParams(((" the cat", 2.5), ((7, 9), -math.inf), ((0, 2, 7, 7, 7, 1, 0, 5), 3.0))),
        SequenceBiasParams((("the", -1e300), ("ab", 2.0), ((12, 12, 30), -1.0), ((12, 30), 0.5), (30, 1e30))),
    ),
    RepetitionParams: (
        RepetitionParams(1.3),
        RepetitionParams(0.5, scope="output", exempt=()),
        RepetitionParams(1e30, scope="prompt", window=4, exempt=("stop", " the", 9)),
        RepetitionParams(1.7, slope=0.4, window=7),
        RepetitionParams(3.0, sustain=2, decay=4, exempt=("stop",)),
        RepetitionParams(0.5, sustain=1, decay=3, decay_space="logit", slope=0.1, scope="output", exempt=()),
        RepetitionParams(1e30, sustain=3, scope="prompt"),
    ),
    FrequencyParams: (
        FrequencyParams(0.4),
        FrequencyParams(-1.5, scope="both", exempt=("special", "stop")),
        FrequencyParams(1e300, scope="prompt", window=2),
    ),
    PresenceParams: (
        PresenceParams(0.7),
        PresenceParams(-2.0, scope="both", window=3),
        PresenceParams(0.1, scope="prompt", exempt=("stop", 5)),
    ),
    LengthDecayParams: (
        LengthDecayParams((0, 1.1)),
        LengthDecayParams((2, 1e9)),
        LengthDecayParams((1, 0.5)),
    ),
    LengthBoostParams: (
        LengthBoostParams(1.5),
        LengthBoostParams(-1e90, power=0.5),
        LengthBoostParams(2.0, power=0, after=("the", "ca", "a", "\n")),
    ),
    NoRepeatNgramParams: (
        NoRepeatNgramParams(1),
        NoRepeatNgramParams(2, exempt=()),
        NoRepeatNgramParams(3, scope="output", window=5),
        NoRepeatNgramParams(2, scope="prompt", exempt=("stop", 7)),
    ),
    DryParams: (
        DryParams(0.8, allowed=1),
        DryParams(2.0, base=1.1, allowed=0, breakers=(), exempt=()),
        DryParams(1.0, allowed=1, window=6, breakers=("at s", "cab", "\n"), exempt=("stop", 7)),
        DryParams(1.5, allowed=1, matches="count", max_ngram=2, breakers=("😀",)),
        DryParams(1.0, base=1.0, allowed=1, strict=True, scope="output", breakers=("a",)),
        DryParams(1e300, base=1e30, allowed=0, scope="prompt", breakers=("ab", "b")),
    ),
    LzParams: (
        LzParams(0.15),
        LzParams(1.0, length=1, scope="both", exempt=()),
        LzParams(1e300, length=3, window=4, scope="prompt", exempt=("stop", 9)),
    ),
    DynamicTemperatureParams: (
        DynamicTemperatureParams(0.5, 1.5),
        DynamicTemperatureParams(0.0, 2.0, 3.0),
        DynamicTemperatureParams(1e-44, 1e30, 0.0),
        DynamicTemperatureParams(0.0, 0.0),
        DynamicTemperatureParams(range=0.4),
        DynamicTemperatureParams(range=7.0, exponent=0.5),
    ),
    EdtParams: (EdtParams(0.1), EdtParams(1.0, t0=0.6), EdtParams(1e-300, t0=1e30), EdtParams(1e300)),
    SmoothingParams: (
        SmoothingParams(0.3),
        SmoothingParams(0.05, curve=2.0),
        SmoothingParams(4.0, curve=3.0),
        SmoothingParams(1e-300),
        SmoothingParams(1e300, curve=1.5),
    ),
    TemperatureParams: tuple(TemperatureParams(t) for t in (0.1, 0.7, 2.5, 1e-44, 1e30)),
    MinPParams: (*(MinPParams(p) for p in (1e-300, 0.05, 0.5, 1.0)), MinPParams(0.9, keep=9)),
    TopKParams: (
        *(TopKParams(k) for k in (1, 5, 40, 10_000)),
        TopKParams(5, ties="keep"),
        TopKParams(2, keep=7),
    ),
    TopPParams: (
        *(TopPParams(p) for p in (0.0, 0.3, 0.9, 0.9999)),
        TopPParams(0.5, boundary="exclusive"),
        TopPParams(0.0, keep=6),
    ),
    TopNSigmaParams: (
        *(TopNSigmaParams(n) for n in (1e-3, 0.7, 1.0, 3.0, 1e30)),
        TopNSigmaParams(1.0, std="sample"),
        TopNSigmaParams(0.1, keep=9),
    ),
    EpsilonParams: (
        *(EpsilonParams(cutoff) for cutoff in (1e-300, 3e-4, 0.02, 0.9)),
        EpsilonParams(0.5, keep=9),
    ),
    EtaParams: (*(EtaParams(cutoff) for cutoff in (1e-300, 3e-4, 0.02, 0.9)), EtaParams(0.5, keep=9)),
    TopAParams: (*(TopAParams(a) for a in (1e-300, 0.2, 1.0)), TopAParams(1.0, keep=9)),
    PLessParams: (
        *(PLessParams(order) for order in (1.01, 2.0, 3.0, 100.0)),
        PLessParams(2.0, norm=True),
        PLessParams(2.0, keep=9),
    ),
    TopHParams: (
        *(TopHParams(h) for h in (1e-300, 0.4, 0.9, 1.0)),
        TopHParams(0.6, candidates=5),
        TopHParams(0.6, candidates=5, renormalise=False),
        TopHParams(0.1, candidates=2, keep=9),
    ),
    MinKParams: (*(MinKParams(tau) for tau in (0.0, 3.0, 60.0, 1e300)), MinKParams(0.0, keep=9)),
    TypicalParams: (
        *(TypicalParams(p) for p in (1e-300, 0.2, 0.95, 0.9999)),
        TypicalParams(0.5, boundary="strict"),
        TypicalParams(0.5, boundary="exclusive"),
        TypicalParams(0.3, ties="keep"),
        TypicalParams(0.1, keep=9),
    ),
    TfsParams: (*(TfsParams(z) for z in (0.0, 0.3, 0.95)), TfsParams(0.9, "kobold"), TfsParams(0.1, keep=9)),
    XtcParams: (
        XtcParams(1.0, 0.01),
        XtcParams(0.5, 1e-300),
        XtcParams(1.0, 0.02, exempt=(), ties="keep", compare="gt"),
        XtcParams(1.0, 0.004, exempt=("special", "stop", 12, "e"), on_exempt="uncount"),
        XtcParams(1.0, 0.004, exempt=("newline", 20, 21, 22), on_exempt="skip"),
        XtcParams(1.0, 0.01, mode="expected"),
        XtcParams(0.3, 0.01, mode="expected", exempt=(12, 13)),
        XtcParams(1.0, 0.001, keep=40),
        XtcParams(1e-300, 0.6),
    ),
    MirostatParams: (
        MirostatParams(2, tau=1.5, eta=1.0),
        MirostatParams(1, tau=1.5, eta=1.0),
        MirostatParams(2),
        MirostatParams(1, tau=0.5, eta=3.0),
        MirostatParams(2, tau=0.0),
        MirostatParams(2, tau=1000.0, eta=1000.0),
        MirostatParams(1, tau=1000.0, eta=1000.0),
    ),
    SkewParams: tuple(SkewParams(s) for s in (0.7, -0.7, 10.0, -10.0, 1e-12)),
    AdaptivePParams: (
        AdaptivePParams(0.3),
        AdaptivePParams(0.5, decay=0.0),
        AdaptivePParams(1.0, decay=0.99),
        AdaptivePParams(1e-300, decay=0.5),
    ),
    KgwParams: (
        KgwParams(_KEY),
        KgwParams(Secret(2**63 - 1), ratio=0.5, bias=-3.0, width=3, vocab=200),
        KgwParams(_KEY, scheme="selfhash", bias=1000.0),
        KgwParams(_KEY, scheme="selfhash", width=4, vocab=1000),
    ),
    SynthIdParams: (
        SynthIdParams(_KEYS),
        SynthIdParams(Secret(0), ngram=2, table_size=64, table_seed=2**60, history=1),
        SynthIdParams(Secret((1, 2**63 - 1)), ngram=3, skip_first=True),
    ),
    GumbelMarkParams: (
        GumbelMarkParams(_KEY),
        GumbelMarkParams(Secret(2**64 - 1), width=1, deduplicate="none"),
        GumbelMarkParams(_KEY, width=2, deduplicate="all", history=None),
        GumbelMarkParams(_KEY, width=6, alpha=1.0, history=1),
    ),
}


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
