"""The walk over pairs of options of `gencli run`: each pair acts together, or is refused by name.

Both act: taking either of them away changes what the run prints. The input is crafted by trying seeds.
"""

import io
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from gencli.cli.app import main
from gencli.errors import GencliError
from gencli.options import OPTIONS
from tests.pairs import ENDING, FEATURES, HIDING, IDS, NEUTRAL

__all__ = ["KEYS", "OptionWalk", "Verdict"]

SEEDS = 40
KEYS = [entry.key for entry in OPTIONS]
TIMES = re.compile(
    r"\d[\d.]*(?= (?:tok/s|s\b|threads))|(?<=, )first token after .*|\"(?:timings|grammar)\": ?\{[^}]*\}"
)
MODEL = """
from typing import Annotated, Literal

from pydantic import Field

Digits = Annotated[int, Field(ge=10, le=9999)] | list[Literal[0, 1, "a", "b", "c", "d"]]
"""
TAG = '{"type": "structural_tag", "format": {"type": "regex", "pattern": "[a-p][a-p][a-p]+"}}'
TOOLS = '[{"name": "beep", "parameters": {"properties": {"n": {"enum": [1, 2]}}, "required": ["n"]}}]'
BASE = {
    "--model": ("fake",),
    "--max-tokens": ("20",),
    "--allow-ids": (IDS,),
    "PROMPT": ("the cat bade each big deaf chief a day",),
}


@dataclass(frozen=True)
class Verdict:
    """What two options do together; `said` is the refusal, the notice, or what is wrong."""

    kind: Literal["acting", "warned", "refused", "silent"]
    said: str = ""


class OptionWalk:
    """Runs command lines, each of them once, in an empty folder that is the working directory."""

    def __init__(self, folder: Path):
        (folder / "prompt.txt").write_text("a dog ran\n")
        # Of two values at least one stands beside any other option, none of which sets both.
        (folder / "preset.yaml").write_text("stages:\n  bias: [[100, 2.5]]\n  presence: 2.0\n")
        (folder / "walked_model.py").write_text(MODEL)
        (folder / "tag.json").write_text(TAG)
        (folder / "tools.json").write_text(TOOLS)
        self._output = folder / "out.txt"
        self._seen = {}

    def verdicts(self, key: str) -> dict[str, Verdict]:
        """What the option does beside each of those that come after it."""
        return {other: self.verdict((key, other)) for other in KEYS[KEYS.index(key) + 1 :]}

    def verdict(self, pair: tuple[str, str]) -> Verdict:
        """What the two options do together."""
        missing = {key for key, other in (pair, pair[::-1]) if key not in NEUTRAL and other not in HIDING}
        needed = set(missing)
        for seed in range(1, SEEDS):
            code, _, err, _ = both = self._outcome(merged(seed, pair))
            if code == 2:
                if all(is_named(key, err) for key in pair):
                    return Verdict("refused", sentence(err))
                return Verdict("silent", f"It is refused without both names: {err}")
            alone = {key: self._outcome(merged(seed, pair, without=(key,))) for key in pair}
            shown = {key for key in pair if alone[key] != both}
            if loud := shown & set(NEUTRAL):
                return Verdict("silent", f"{loud} changes the outcome")
            missing = missing - shown if set(pair) <= ENDING else needed - shown
            if not missing:
                known = {line for _, _, err_alone, _ in alone.values() for line in notices(err_alone)}
                new = [line for line in notices(err) if line not in known]
                return Verdict("warned", " ".join(new)) if new else Verdict("acting")
        return Verdict("silent", f"{missing} shows no mark with any seed")

    def _outcome(self, arguments):
        """What a run with these arguments does: code, stdout, stderr and file, without times."""
        line = command_line(arguments)
        if line not in self._seen:
            self._output.unlink(missing_ok=True)
            with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
                code = _code(line)
            file = self._output.read_text() if self._output.exists() else ""
            texts = (out.getvalue(), err.getvalue(), file)
            self._seen[line] = (code, *(TIMES.sub("#", text) for text in texts))
        return self._seen[line]


def _code(line):
    """The exit code, also where --debug lets an error through."""
    try:
        return main(line)
    except GencliError as error:
        print(f"Error: {error}", file=sys.stderr)
        return error.exit_code


def merged(seed, keys, without=()):
    """Arguments of a run with these options: base, then what they need, then their own."""
    together = {**BASE, "--seed": (str(seed),)}
    # What is taken away is not brought back by what the other one needs: --system without --chat.
    gone = [item for key in without for item in FEATURES[key].own.items()]
    for key in keys:
        together |= dict(item for item in FEATURES[key].setup.items() if item not in gone)
    for key in keys:
        if key not in without:
            together |= FEATURES[key].own
    if "seed" in keys and "seed" not in without:
        together["--seed"] = (str(seed + 1000),)
    return together


def command_line(arguments):
    """The words of a run; a prompt from a file replaces the one in words."""
    flags = {**arguments}
    prompt = flags.pop("PROMPT")
    line = ["run", *(() if "--file" in flags else prompt)]
    for flag, values in flags.items():
        line += [flag] if values is None else [word for value in values for word in (flag, value)]
    return tuple(line)


def is_named(key, text):
    return any(flag in text for flag in (*FEATURES[key].own, *FEATURES[key].setup))


def notices(err):
    return [line.removeprefix("Notice: ") for line in err.splitlines() if line.startswith("Notice: ")]


def sentence(err):
    """The message of an error and its hint, in one line."""
    return " ".join(re.sub(r"^(?:Error|Hint): ", "", err, flags=re.MULTILINE).split())
