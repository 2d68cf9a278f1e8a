"""The options that give an output its structure, for the table in gencli.config.options.run."""

from __future__ import annotations

from typing import Literal

from gencli.config.options.option import MAX_SAMPLES, MAX_SECONDS, Option, Section
from processors.catalog import WHITESPACE_LIMIT
from processors.constraint import WHITESPACE
from processors.conversion import Bounds

__all__ = ["IN_PROMPT", "STRUCTURE"]

_HERE: Section = "Structure"
IN_PROMPT = ("auto", "off", "on")  # values of `schema_in_prompt` besides a text

STRUCTURE: tuple[Option, ...] = (
    Option(("--json",), bool, "The output is a JSON object.", _HERE, False),
    Option(("--json-schema",), str, "The output is a JSON document of this schema: a file, the schema "
           "itself, or names as in 'name, age int, tags[]'.", _HERE, metavar="SCHEMA"),
    Option(("--pydantic",), str, "The output is a JSON document of this pydantic model.", _HERE,
           metavar="MODULE:MODEL", flag_only="a file must not be able to run code"),
    Option(("--regex",), str, "The whole output matches this regular expression.", _HERE, metavar="REGEX"),
    Option(("--grammar",), str, "The output follows this grammar, a file or the text: GBNF, or xgrammar's "
           "EBNF; it begins at root.", _HERE, metavar="GRAMMAR"),
    Option(("--lark",), str, "The output follows this grammar in llguidance's Lark, a file or the text; it "
           "begins at start.", _HERE, metavar="GRAMMAR"),
    Option(("--choice",), str, "The output is one of the choices.", _HERE, (), many=True, metavar="TEXT"),
    Option(("--structural-tag",), str, "The output is free text with the tags that this file describes, "
           "in xgrammar's JSON.", _HERE, metavar="FILE"),
    Option(("--tools",), str, "The output may call these functions, OpenAI tool definitions in a file or as "
           "JSON, in the format of the model.", _HERE, metavar="TOOLS"),
    Option(("--tool-choice",), str, "auto: the model may call functions; required: it has to; a name: it has "
           "to call this function.", _HERE, "auto", metavar="CHOICE"),
    Option(("--schema-in-prompt",), str, "What the prompt tells the model of its output. auto: tools, where "
           "the chat template has no place for them; off: nothing; on: schema, choices or tools; or a text "
           "that has {schema}, {choices} or {tools}, and may have {call}, the form of a call.", _HERE, "auto",
           metavar="auto|off|on|TEXT"),
    Option(("--constrain-after",), str, "The output is free up to the end of this text, as in '</think>'; "
           "what follows it is the result.", _HERE, metavar="MARKER"),
    Option(("--grammar-backend",), Literal["auto", "xgrammar", "llguidance"],
           "The compiler of grammars; auto takes the one that enforces more of the grammar.", _HERE, "auto"),
    Option(("--grammar-timeout",), float, "At most this many seconds for compiling a grammar.", _HERE, 30.0,
           Bounds(gt=0, le=MAX_SECONDS)),
    Option(("--schema-strict",), bool, "Refuse a schema that the mask does not enforce completely.", _HERE,
           False),
    Option(("--extra-properties",), bool, "Allow properties that the schema neither names nor forbids.",
           _HERE, False),
    Option(("--property-order",), Literal["schema", "any"], "The order of properties: that of the schema, or "
           "any.", _HERE, "schema"),
    Option(("--json-whitespace",), int, "At most this many consecutive characters of white space in a "
           "document.", _HERE, WHITESPACE, Bounds(ge=0, le=WHITESPACE_LIMIT)),
    Option(("--formats",), bool, "A document that violates a format of the schema is not valid.", _HERE,
           False),
    Option(("--partial",), bool, "Write an output that is incomplete or not valid as well; the exit code is "
           "6.", _HERE, False),
    Option(("--retries",), int, "Sample again, up to this many times, if an output is not valid.", _HERE, 0,
           Bounds(ge=0, le=MAX_SAMPLES)),
    Option(("--finish-open",), bool, "Complete a document that `max_tokens` cuts with a short "
           "completion; the finish reason is then closed.", _HERE, False),
    Option(("--jump-forward",), Literal["auto", "off"], "Draft text that the grammar forces, to need fewer "
           "forwards; the text is the same.", _HERE, "auto"),
    Option(("--parsed",), bool, "Write the document as compact JSON, in one line.", _HERE, False),
    Option(("--select",), str, "Write a part of the document by JSON Pointer: a string as text, other values "
           "as compact JSON.", _HERE, metavar="POINTER"),
)  # fmt: skip
