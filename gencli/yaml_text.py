"""Write YAML that YAML 1.1 and 1.2 read as the same value."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import yaml

from gencli.json_text import to_json

__all__ = ["to_yaml"]

# A number or a date in one version of YAML, and text in the other.
_AMBIGUOUS = re.compile(r"[-+]?[0-9.][0-9a-fA-FxXob_.eE+:-]*")
_BREAKS = re.compile("[\r\x85\u2028\u2029\ufeff]")  # readers may turn them into newlines, or drop them


class _Dumper(yaml.SafeDumper):
    """Writes multi-line texts as literal blocks, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = None
    if _BREAKS.search(text) or _AMBIGUOUS.fullmatch(text):
        style = '"'
    elif "\n" in text:
        # Leading spaces of the first line would be read as indentation; the emitter's indentation indicator
        # is wrong if blank lines come first.
        style = '"' if text[0] in " \n" else "|"
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _represent_text)


def to_yaml(value: Any, *, encoding: str = "utf-8") -> str:
    """Return a YAML document with its final newline. It has the same value as the JSON of `to_json`."""
    text = yaml.dump(
        json.loads(to_json(value)),
        Dumper=_Dumper,
        sort_keys=False,
        allow_unicode=encoding.lower().replace("-", "").startswith("utf"),
        width=math.inf,
    )
    end = "...\n"  # of a document that is a plain scalar; an indented one is text
    return text.removesuffix(end) if text.endswith(f"\n{end}") else text
