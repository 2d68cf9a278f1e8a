"""YAML as gencli writes it: what `to_json` writes, for people; YAML 1.1 and 1.2 read it back as the same."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import yaml

from gencli.json_text import to_json

__all__ = ["to_yaml"]

# A number, or with a time of day a date, in one version of YAML and a text in the other.
_DOUBTFUL = re.compile(r"[-+]?[0-9.][0-9a-fA-FxXob_.eE+:-]*")
_BREAKS = re.compile("[\r\x85\u2028\u2029\ufeff]")  # which a reader may turn into newlines, or drop


class _Dumper(yaml.SafeDumper):
    """Texts of several lines are literal blocks; nothing is an alias of anything."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _BREAKS.search(text) or _DOUBTFUL.fullmatch(text):
        style = '"'
    elif "\n" in text:
        # A reader takes the first line's spaces for the indentation of all; the emitter's hint for that is
        # wrong where blank lines come first.
        style = '"' if text[0] in " \n" else "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_yaml(value: Any, *, encoding: str = "utf-8") -> str:
    """Return a YAML document, its newline included; it holds the value that the JSON of `to_json` holds."""
    text = yaml.dump(
        json.loads(to_json(value)),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=encoding.lower().replace("-", "").startswith("utf"),
        width=math.inf,
    )
    return text.removesuffix("...\n")
