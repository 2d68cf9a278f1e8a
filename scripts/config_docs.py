"""Write docs/presets.md, docs/stages.md and docs/preset.schema.json: `python scripts/config_docs.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from gencli.cli.parser.help import describe_option, signature
from gencli.config.options.run import OPTIONS
from gencli.config.presets.keys import KEYS, STRUCTURE, stage_specs
from gencli.config.presets.preset_schema import json_schema
from processors.catalog import BUILTIN
from processors.params import describe

DOCS = Path(__file__).parent.parent / "docs"

PRESETS = """\
# Presets and configuration

This page is made by scripts/config_docs.py from the table of options; a test keeps it true. The same
table gives [preset.schema.json](preset.schema.json): with the line
`# yaml-language-server: $schema=PATH/preset.schema.json` an editor completes and checks a preset.
`gencli config schema` prints it with the stages of installed plugins and of `--plugin`.

## Where a value comes from

flag > environment > presets > the user's defaults > the model's generation_config.json > default

The strongest place wins, value by value, and every field of a stage is a value of its own: `--top-p 0.5`
over a preset with `stages: {top_p: {p: 0.9, keep: 2}}` changes `p` and leaves `keep`. A list, such as
stop texts, is replaced as a whole. Two values for one field in the same place are refused.
`--raw` replaces a preset's `chat`, `stats` its `quiet`, `chain` its `temperature_last`, and each the
other way round.
`gencli config show` prints every value with its origin, `gencli run --show-chain` those of the chain.

`--preset NAME` takes the first file NAME.yaml in ./configs, in the user's folder and among those that come
with gencli (`gencli config path`, `gencli config list`); `--preset ./mine.yaml` takes a file. Several
presets stack, and the later one wins.

The user's defaults are a preset that every run begins with, if it is there: `~/.config/gencli/defaults.yaml`.
`gencli config path` prints the place on this system, `gencli config edit` opens it in EDITOR and checks it.
What it sets has the origin `user defaults` wherever origins are shown; batches and chats begin with it, too.

Of a model's generation_config.json the values that are written there count: temperature, top_k, top_p,
min_p, repetition_penalty, max_new_tokens, min_new_tokens, suppress_tokens, stop_strings, and
`do_sample: false` as temperature 0. What gencli does not have is said on stderr.

## Files

```yaml
# What it is for: the first line is what `gencli config list` prints.
extends: balanced          # or [balanced, ./mine.yaml]
temperature: 0.9           # any key of the table below
stop: ["\\n\\n", "END"]      # YAML's own escapes; one text needs no list
stages:                    # any field of any stage, see stages.md
  top_k: {k: 40, ties: keep}
  repetition: 1.1          # the main value alone
chain:                     # only for another order than the default
  - penalties
  - top_k: 50              # a place and a value
  - truncate
  - temperature
```

Files are UTF-8, at most 256 KiB. Only `true` and `false` are switches, so `no` is a text. Tags are refused,
a key stands once, aliases count as often as they are used. Nothing is substituted, and nothing names code:
that is for flags alone. A file that a preset names (under `extends`, `json_schema`, `grammar`, `lark`,
`structural_tag` or `tools`) is looked for from the preset's own folder, wherever the command is given;
`gencli config export` writes its whole path. It keeps the description of the last preset that was named and
what the presets extend, and writes everything else that the run sets; a seed only if one was given. A fault
is named as `file:line:column`, of a list the item's, with exit code 3; `gencli config lint FILES` names all
of them, and refuses what does not stand together.

| Key | Meaning |
|---|---|
"""

VARIABLES = """
## Environment

Every flag has a variable. A switch takes 1, true, yes, on or 0, false, no, off. An option that may be
repeated takes one value, or a JSON list: `GENCLI_STOP='["END", "\\\\n\\\\n"]'`. Texts are read as the flag
reads them. An empty variable is none; one that starts with GENCLI_ and belongs to no option is refused, as
is a wrong value, with exit code 2.

| Key | Flag | Variable | Meaning |
|---|---|---|---|
"""

STAGES = """\
# Stages

In the order in which they run if nothing else is asked for. This page is made by scripts/config_docs.py
from processors/catalog/; a test keeps it true. Default values are off. `--stage name:field=value` sets a
field, as does `stages:` in a preset; the first field of a stage is its main value, `--stage name=value`.
"""


def presets_page() -> str:
    """Return docs/presets.md."""
    keys = [f"| `{key}` | {_cell(text)} |" for key, text in STRUCTURE.items()]
    rows = []
    for entry in OPTIONS:
        key = f"`{entry.key}`" if entry.key in (*KEYS, *STRUCTURE) else "none"
        why = f" No key: {entry.flag_only}." if entry.flag_only else ""
        meaning = _cell(describe_option(entry).replace("\\", "\\\\") + why)
        rows.append(f"| {key} | `{_cell(signature(entry))}` | `{entry.variable}` | {meaning} |")
    keys.append("| any other | The keys of the next table, with the same meaning as the flag. |")
    return PRESETS + "\n".join(keys) + "\n" + VARIABLES + "\n".join(rows) + "\n"


def stages_page() -> str:
    """Return docs/stages.md."""
    parts = [STAGES]
    for spec in sorted(BUILTIN, key=lambda spec: spec.phase):
        parts.append(
            f"## {spec.name}\n\n{spec.phase.name.capitalize()}. {(spec.params.__doc__ or '').strip()}"
        )
        if spec.name not in {known.name for known in stage_specs()}:
            parts[-1] += " Set from the model's tokenizer, never by hand."
        rows = ["", "| Field | Type | Range | Default | Meaning |", "|---|---|---|---|---|"]
        for name, about in describe(spec.params).items():
            default = f"`{json.dumps(about['default'])}`"
            kind, limits = _cell(_type(about["type"])), _cell(str(about["bounds"]))
            rows.append(f"| `{name}` | {kind} | {limits} | {default} | {_cell(about['doc'])} |")
        parts[-1] += "\n" + "\n".join(rows) + "\n"
    return "\n".join(parts)


def schema_text() -> str:
    """Return docs/preset.schema.json."""
    return json.dumps(json_schema(), indent=2) + "\n"


PAGES = {"presets.md": presets_page, "stages.md": stages_page, "preset.schema.json": schema_text}


def _type(hint: Any) -> str:
    names = {int: "whole number", float: "number", str: "text", bool: "true or false", type(None): "null"}
    arguments = get_args(hint)
    if hint in names:
        return names[hint]
    if get_origin(hint) is Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if get_origin(hint) is tuple:
        if arguments[-1] is Ellipsis:
            return f"list of {_type(arguments[0])}"
        return f"pair ({', '.join(map(_type, arguments))})"
    return " or ".join(map(_type, arguments))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    for file, make in PAGES.items():
        (DOCS / file).write_text(make(), encoding="utf-8")
