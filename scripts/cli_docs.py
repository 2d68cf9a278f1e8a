"""Write docs/cli.md from the table of options: `python scripts/cli_docs.py`."""

from __future__ import annotations

from pathlib import Path

from gencli.cli.parser.help import describe_option, signature
from gencli.config.options.run import OPTIONS, SECTIONS

PAGE = Path(__file__).parent.parent / "docs" / "cli.md"

HEAD = """\
# gencli run

`gencli run [OPTIONS] [PROMPT]...` generates text from prompts. This page is made by
scripts/cli_docs.py from the table in gencli/config/options/run.py; a test keeps it true.

stdout (or `--output`) carries the result and nothing else; the summary, progress and notices go to
stderr, and `--quiet` leaves only errors. Text ends with one newline; JSON
([schema](run-output.schema.json)) has it byte for byte. Several prompts, or `-n` above 1, are blocks
under labels like `==> 2: the prompt <==`. From stdin and `--file`, one newline at the end is dropped.

Without a prompt, or as the prompt `-`, the text of a pipe is the prompt. Beside a prompt, what is piped in or
redirected stands behind it after a blank line (behind each, if there are several or files), which a notice
says; `{stdin}` in an argument puts it there instead. `-` and `{stdin}` read stdin to its end, however long it
takes. Otherwise a pipe has 5 seconds to give its first byte or to end: one that somebody left open, as
some schedulers and ssh do, never holds a run up, and a notice says that nothing came. `< /dev/null` gives a
run no stdin, which a loop over lines of stdin (`while read line; do gencli run "$line" < /dev/null; done`)
needs. 64 MiB are the most.

An option that would do nothing is refused, with the option that it contradicts named; a stage's field
that `--stage` and a flag both set is refused as well. Values also come from presets and variables, see
[presets.md](presets.md). `--temperature 0` is greedy with every sampler.

| Exit code | Meaning |
|---|---|
| 0 | done, also when whoever read a pipe has gone (`gencli run ... \\| head -1`) |
| 1 | a fault of gencli (`--debug` shows the traceback) |
| 2 | the command line is wrong |
| 3 | a preset, schema or grammar is wrong |
| 4 | a plug-in is wrong |
| 5 | the model cannot be loaded or used |
| 6 | generation failed, or its result is not valid |
| 7 | some prompts of several failed |
| 130 | interrupted: the text so far is written; a second Ctrl-C ends at once |
"""


def page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for section in SECTIONS:
        rows = [
            f"| `{_cell(signature(entry))}` | {_cell(_literal(describe_option(entry)))} |"
            for entry in OPTIONS
            if entry.section == section
        ]
        parts.append("\n".join([f"## {section}", "", "| Option | Meaning |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def _literal(text: str) -> str:
    return text.replace("\\", "\\\\")


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
