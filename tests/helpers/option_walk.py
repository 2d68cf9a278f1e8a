"""The walk over pairs of options of `gencli run`: each pair acts together, or is refused by name.

Both act: taking either of them away changes what the run prints. The input is crafted by trying seeds.
"""

import io
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

from gencli.cli.app import main
from gencli.config.option_names import with_flags
from gencli.config.run_options import OPTIONS, option
from gencli.errors import GencliError
from gencli.structured.output_spec import KINDS
from tests.helpers.pairs import ELSEWHERE, ENDING, FEATURES, HIDING, IDLE, IDS, LOUD, NEUTRAL

__all__ = ["KEYS", "OptionWalk", "Verdict", "command_line", "merged", "pair_setups", "run_line"]

SEEDS = 40
KEYS = [entry.key for entry in OPTIONS if entry.key not in ELSEWHERE]
KIND_FLAGS = {option(kind).flag for kind in KINDS}
TIMES = re.compile(
    r"\d[\d.]*(?= (?:tok/s|s\b|threads?\b))|(?<=, )first token after .*"
    r"|\"timings\": ?\{[^}]*\}|(?<=\"compile_seconds\": )[\d.]+|\"speculation\": ?(?:null|\{[^}]*\})"
)
# What is said of drafts is no part of an outcome: how many there are is the clock's affair.
OF_DRAFTS = re.compile(r"^(?:Draft(?:s \(|ing took )|Notice: --draft-tree has no effect).*\n", re.MULTILINE)
MODEL = """
from typing import Annotated, Literal

from pydantic import BaseModel, Field

Pattern = Annotated[str, Field(min_length=1, max_length=3, json_schema_extra={"format": "regex"})]


class Named(BaseModel):
    a: Literal[1, 2] = 1


Walked = Annotated[list[Pattern], Field(min_length=1)] | Annotated[int, Field(ge=10, le=9999)] | Named
"""
TAG = '{"type": "structural_tag", "format": {"type": "regex", "pattern": "[a-p][a-p][a-p]+"}}'
TOOLS = '[{"name": "beep", "parameters": {"properties": {"s": {"type": "string"}}, "required": ["s"]}}]'
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
        (folder / "kgw.yaml").write_text("{key: 5, ratio: 0.5, bias: 3}")
        self.folder = folder
        self._seen = {}

    def verdict(self, pair: tuple[str, str]) -> Verdict:
        """What the two options do together, in the first of their setups and seeds in which both show."""
        setups, refused, failed = dict(enumerate(pair_setups(pair))), None, ""
        unseen = {key for key, other in (pair, pair[::-1]) if has_to_show(key, other)}
        missing = dict.fromkeys(setups, unseen)
        for seed in range(1, SEEDS):
            for i, setup in [*setups.items()]:
                code, _, err, _ = both = self._outcome(merged(seed, pair, setup))
                if code == 2:
                    del setups[i]
                    if all(is_named(key, err) for key in pair):
                        refused = refused or Verdict("refused", sentence(err))
                    failed = err
                    continue
                alone = {key: self._outcome(merged(seed, pair, setup, without=(key,))) for key in pair}
                shown = {key for key in pair if alone[key] != both}
                if loud := {key for key in shown & set(NEUTRAL) if pair not in LOUD}:
                    return Verdict("silent", f"{loud} changes the outcome")
                missing[i] = missing[i] - shown if set(pair) <= ENDING else unseen - shown
                if not missing[i]:
                    known = {line for _, _, err_alone, _ in alone.values() for line in notices(err_alone)}
                    new = [line for line in notices(err) if line not in known]
                    return Verdict("warned", " ".join(new)) if new else Verdict("acting")
            if not setups:
                return refused or Verdict("silent", f"It is refused without both names: {failed}")
        return refused or Verdict("silent", f"{missing} show no mark with any seed")

    def _outcome(self, arguments):
        """What a run with these arguments does: code, stdout, stderr and file, without times."""
        line = command_line(arguments)
        if line not in self._seen:
            output = self.folder / "out.txt"
            output.unlink(missing_ok=True)
            code, *texts = run_line(line)
            texts.append(output.read_text() if output.exists() else "")
            self._seen[line] = (code, *(TIMES.sub("#", OF_DRAFTS.sub("", text)) for text in texts))
        return self._seen[line]


def run_line(line):
    """What `gencli` does with these words: its code, stdout and stderr."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        code = _code(line)
    return code, out.getvalue(), err.getvalue()


def _code(line):
    """The exit code, also where --debug lets an error through."""
    try:
        return main(line)
    except GencliError as error:
        hint = f"\nHint: {error.hint}" if error.hint else ""
        print(with_flags(f"Error: {error.message.rstrip('.')}.{hint}"), file=sys.stderr)
        return error.exit_code


def pair_setups(pair):
    """What both need: all combinations in which not more than one option says what the output is."""
    owns = [FEATURES[key].own for key in pair]
    together = (one | other for one, other in product(*(FEATURES[key].setups for key in pair)))
    found = [setup for setup in together if len(KIND_FLAGS & {*setup, *owns[0], *owns[1]}) < 2]
    # Of two kinds, which never stand together, neither needs anything.
    return found or [{}]


def merged(seed, keys, setup, without=()):
    """Arguments of a run with these options: base, then what they need, then their own."""
    # What is taken away is not brought back by what the other one needs: --system without --chat.
    gone = [item for key in without for item in FEATURES[key].own.items()]
    together = {**BASE, **dict(item for item in setup.items() if item not in gone)}
    for key in keys:
        if key not in without:
            together |= FEATURES[key].own
    together["--seed"] = (str(seed + 1000 * ("seed" in keys and "seed" not in without)),)
    return together


def command_line(arguments):
    """The words of a run; a prompt from a file replaces the one in words."""
    flags = {**arguments}
    prompt = flags.pop("PROMPT")
    line = ["run", *(() if "--file" in flags else prompt)]
    for flag, values in flags.items():
        line += [flag] if values is None else [word for value in values for word in (flag, value)]
    return tuple(line)


def has_to_show(key, other):
    return key not in NEUTRAL and other not in HIDING and (other, key) not in IDLE


def is_named(key, text):
    """Whether a refusal names the option, or the one kind of structure that it goes with."""
    own, setups = FEATURES[key].own, FEATURES[key].setups
    needed = set.intersection(*map(set, setups)) & KIND_FLAGS
    return any(re.search(rf"(?<!\S){flag}(?![\w-])", text) for flag in {*own, *needed})


def notices(err):
    return [line.removeprefix("Notice: ") for line in err.splitlines() if line.startswith("Notice: ")]


def sentence(err):
    """The message of an error and its hint, in one line."""
    return " ".join(re.sub(r"^(?:Error|Hint): ", "", err, flags=re.MULTILINE).split())
