"""Grammars, vocabularies and walks that the tests of the back ends share."""

import json
import re
from dataclasses import dataclass
from functools import cache

import torch

from gencli.text.detokenizer import byte_alphabet
from processors.base import Env
from processors.grammar.closing import Closer, Position
from processors.grammar.forced_tokens import CanonicalTokenizer, JsonContext
from processors.grammar.grammar_backend import Ask, GrammarVocabulary, load_backend, mask_of, words
from processors.request_values import Constraint
from processors.testing import ToyVocabulary
from tests.helpers.tokenizers import tokenizer_json

TEXTS = ("ab", "aba", "abab cat", "the cat sat", "é", "éa 😀", "日本", "ba\n\nba", "aa" * 9)
VALUES = ("the cat", "the", 12, -1.5, None, True, ["a", {"b": "é"}], {"": 0}, "")

PERSON = json.dumps(
    {
        "type": "object",
        "properties": {
            "a": {"type": "string"},
            "the": {"type": "integer"},
            "cat": {"type": "array", "items": {"type": ["boolean", "null"]}, "minItems": 1},
        },
        "required": ["a", "cat"],
        "additionalProperties": False,
    }
)
TREE = json.dumps({"type": "array", "items": {"$ref": "#"}})
MIXED = json.dumps({**json.loads(PERSON), "x-lark": "any-order"})
BOTH = [
    ("json_schema", PERSON, 8),
    ("json_schema", PERSON, 0),
    ("json_schema", TREE, 2),
    ("regex", "(ab|a[bc]*é)+ ?(cat|[0-9]{2,4})*", 8),
]
GRAMMARS = {
    "trie": [("choice", json.dumps(TEXTS), 8), ("choice", json.dumps([*map(json.dumps, VALUES)]), 8)],
    "xgrammar": [*BOTH, ("ebnf", 'root ::= "a" root "b" | "the" [^"]* | "é"+', 8)],
    "llguidance": [
        *BOTH,
        ("json_schema", MIXED, 2),
        ("json_schema", MIXED, 0),
        ("lark", 'start: "a" start "b" | "the" /[^"]*/ | "é"+', 8),
    ],
}


@dataclass(frozen=True)
class Words:
    """A vocabulary without a tokenizer."""

    token_bytes: tuple[bytes, ...]
    special_ids: frozenset[int] = frozenset()

    @property
    def vocab_size(self):
        return len(self.token_bytes)

    def encode(self, text, *, special=True):
        singles = {data: token for token, data in enumerate(self.token_bytes) if len(data) == 1}
        return [singles[bytes([byte])] for byte in text.encode()]


@cache
def env_of(name):
    """The toy vocabulary under wider logits, with or without an end of text, or that of Qwen2."""
    toy = ToyVocabulary()
    if name == "toy":
        return Env(toy.vocab_size + 5, toy, toy.eos_ids)
    if name == "no end":  # and a width that fills its last word
        return Env(288, toy)
    alphabet = {char: byte for byte, char in byte_alphabet().items()}
    file = json.loads(tokenizer_json(name))
    words = [b""] * 151_936
    for text, token in file["model"]["vocab"].items():
        words[token] = bytes(alphabet[char] for char in text)
    return Env(len(words), Words(tuple(words)), (151_643,))


@cache
def backend_of(name, vocabulary="toy"):
    return load_backend(name, env_of(vocabulary))


@cache
def vocabulary_of(name="toy"):
    return GrammarVocabulary(env_of(name))


@cache
def compiled(name, kind, text, whitespace=8, vocabulary="toy"):
    return backend_of(name, vocabulary).compile(Constraint(kind, text, name, whitespace))


def legal(name, matcher, vocabulary="toy"):
    """The ids of text that may come next."""
    words = vocabulary_of(vocabulary)
    mask = torch.zeros(1, words.words, dtype=torch.int32)
    backend_of(name, vocabulary).fill([Ask(matcher, (), 0)], mask)
    return ids_of(mask[0] & words.text_mask)


def ids_of(mask):
    return ((mask[:, None] >> torch.arange(32)) & 1).view(-1).nonzero().view(-1).tolist()


def state_of(name, matcher, vocabulary="toy"):
    return (legal(name, matcher, vocabulary), matcher.is_complete(), matcher.is_over(), matcher.forced())


def replay(grammar, tokens):
    matcher = grammar.matcher()
    assert all(matcher.accept(token) for token in tokens)
    return matcher


def same_language(name, texts):
    """A finite list of texts for the trie, and for another back end as a regular expression."""
    pattern = "|".join(re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", text) for text in texts)
    return ("choice", json.dumps(texts)) if name == "trie" else ("regex", pattern)


def closer_of(backend, env):
    """A closer for a back end that is loaded."""
    size = words(env.vocab_size)
    return Closer(CanonicalTokenizer(env.vocabulary), lambda matcher: mask_of(backend, matcher, size)[0])


def json_spot(closer, matcher, text=b""):
    """The place behind these bytes of JSON, which the matcher is given."""
    assert all(matcher.accept(closer.canonical.byte_ids[byte]) for byte in text)
    return Position(matcher, text, JsonContext().after(text), closer.canonical)
