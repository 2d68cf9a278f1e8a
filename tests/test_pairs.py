"""Any two options of a run act together, or are refused by name. The walk is over the table of options.

Both act: taking either of them away changes what the run prints. The input is crafted by trying seeds.
"""

import re

import pytest

from gencli.cli.app import main
from gencli.options import OPTIONS
from tests.pairs import ENDING, FEATURES, HIDING, IDS, NEUTRAL, SKIPPED

SEEDS = 40
KEYS = [entry.key for entry in OPTIONS]
TIMES = re.compile(r"\d[\d.]*(?= (?:tok/s|s\b|threads))|(?<=, )first token after .*|\"timings\": ?\{[^}]*\}")
BASE = {
    "--model": ("fake",),
    "--max-tokens": ("20",),
    "--allow-ids": (IDS,),
    "PROMPT": ("the cat bade each big deaf chief a day",),
}


def test_every_option_is_in_the_walk():
    assert set(FEATURES) == set(KEYS)
    assert set(NEUTRAL) | set(HIDING) | set(SKIPPED) | ENDING <= set(KEYS)
    assert all(text.endswith(".") for text in (*NEUTRAL.values(), *HIDING.values(), *SKIPPED.values()))


@pytest.fixture
def outcome(capfd, tmp_path, monkeypatch):
    """What a run with these arguments does: code, stdout, stderr and file, without times."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "prompt.txt").write_text("a dog ran\n")
    # Of two values at least one stands beside any other option, none of which sets both.
    (tmp_path / "preset.yaml").write_text("stages:\n  bias: [[100, 2.5]]\n  presence: 2.0\n")
    seen = {}

    def call(arguments):
        flags = {**arguments}
        prompt = () if "--file" in flags else flags.pop("PROMPT")
        flags.pop("PROMPT", None)
        line = ["run", *prompt]
        for flag, values in flags.items():
            line += [flag] if values is None else [word for value in values for word in (flag, value)]
        key = tuple(line)
        if key not in seen:
            (tmp_path / "out.txt").unlink(missing_ok=True)
            code = main(line)
            out, err = capfd.readouterr()
            written = tmp_path / "out.txt"
            file = written.read_text() if written.exists() else ""
            seen[key] = (code, *(TIMES.sub("#", text) for text in (out, err, file)))
        return seen[key]

    return call


def merged(seed, keys, without=()):
    """Arguments of a run with these options: base, then what they need, then their own."""
    together = {**BASE, "--seed": (str(seed),)}
    for key in keys:
        together |= FEATURES[key].setup
    for key in keys:
        if key not in without:
            together |= FEATURES[key].own
    if "seed" in keys and "seed" not in without:
        together["--seed"] = (str(seed + 1000),)
    return together


def is_named(key, text):
    return any(flag in text for flag in (*FEATURES[key].own, *FEATURES[key].setup))


def verdict(pair, outcome):
    """acting or refused; or what is wrong."""
    missing = {key for key, other in (pair, pair[::-1]) if key not in NEUTRAL and other not in HIDING}
    needed = set(missing)
    for seed in range(1, SEEDS):
        code, _, err, _ = both = outcome(merged(seed, pair))
        if code == 2:
            return (
                "refused" if all(is_named(key, err) for key in pair) else f"refused without both names: {err}"
            )
        shown = {key for key in pair if outcome(merged(seed, pair, without=(key,))) != both}
        if loud := shown & set(NEUTRAL):
            return f"{loud} changes the outcome"
        missing = missing - shown if set(pair) <= ENDING else needed - shown
        if not missing:
            return "acting"
    return f"{missing} shows no mark with any seed"


@pytest.mark.parametrize("key", KEYS)
def test_the_option_acts_beside_every_other_or_is_refused_by_name(key, outcome):
    if key in SKIPPED:
        pytest.skip(SKIPPED[key])
    later = [other for other in KEYS[KEYS.index(key) + 1 :] if other not in SKIPPED]
    verdicts = {other: verdict((key, other), outcome) for other in later}
    assert {other: said for other, said in verdicts.items() if said not in ("acting", "refused")} == {}, key
