"""`gencli config`: list, show, lint, diff, export, path."""

import os
import subprocess
import sys

from gencli.config.job import make_job
from gencli.config.layers import gather, gather_presets, preset_text
from gencli.config.presets import KEYS
from gencli.errors import UsageError
from tests.cli.conftest import FAKE, ROOT
from tests.config.test_presets import SHIPPED

HEAVY = ("torch", "transformers", "tokenizers", "numpy", "xgrammar", "jinja2", "huggingface_hub")


def run_of(settings):
    """What a run is made of, whoever said it."""
    job = make_job(settings)
    plain = [key for key, entry in KEYS.items() if not entry.field and key != "seed"]
    fields = {(entry.stage, entry.field, entry.value) for entry in job.assembly.values}
    return [settings[key] for key in plain], job.assembly.chain, fields, job.stops, job.limits, job.n


ODD = (
    "-t", "0.1", "--stop", r"\n\n", "--stop", "\U0001f600 \u2028\x85", "--system", "No: #1 'x'\n",
    "--logit-bias", " the=-inf", "--logit-bias", "42=1e-07", "--stage", "top_k:ties=keep", "--chat",
    "--penalty-window", "9", "--no-stream", "--presence-penalty", "1e3", "--stage", "top_p",
    "--max-time", "1e3", "--temperature-last",
)  # fmt: skip


def assert_an_export_is_the_same_run(here, gencli, flags):
    given = ("--max-tokens", "12", *FAKE)
    made = gencli("config", "export", *flags, *given)
    assert made.code == 0, made.err
    here("exported.yaml", made.out)
    again = gencli("config", "export", "--preset", "exported.yaml")
    assert again.out == made.out
    if flags == ODD:  # whose texts are no tokens of the fake model
        return
    texts = [
        gencli("run", *arguments, "hi", "--quiet", "--seed", "5").out
        for arguments in ((*flags, *given), ("--preset", "exported.yaml"))
    ]
    assert texts[0] == texts[1], flags
    assert texts[0], flags


def test_an_exported_run_is_the_same_run(here, gencli):
    for flags in (ODD, ("--chain", "adjust,truncate,scale", "--top-k", "3"), ("--preset", "story")):
        assert_an_export_is_the_same_run(here, gencli, flags)


def test_what_is_exported_is_the_preset_of_the_run(here, gencli, tmp_path):
    for command in ("export", "show --format yaml"):
        assert "\nseed:" not in gencli("config", *command.split(), "--preset", "creative").out
        assert "\nseed: 7" in gencli("config", *command.split(), "--preset", "creative", "--seed", "7").out

    text = gencli("config", "export", *FAKE, "--trust-remote-code").out
    assert text.startswith("# The run had `trust_remote_code`, which only a flag can give.\n")

    here("far/base.yaml", "# The base\nmax_tokens: 9\nstages: {top_k: {k: 4, ties: keep}}\nchat: true\n")
    here("far/mine.yaml", "# Mine: short\n# and more\nextends: [balanced, base.yaml]\ntop_k: 5\nraw: true\n")
    made = gencli("config", "export", "--preset", "far/mine.yaml", "--min-p", "0.5")
    assert made.out == (
        f'# Mine: short\nextends: ["balanced", "{tmp_path}/far/base.yaml"]\nraw: true\n'
        "stages:\n  min_p:\n    p: 0.5\n  top_k:\n    k: 5\n"
    )
    here("exported.yaml", made.out)
    one = gather({"preset": ["far/mine.yaml"], "min_p": "0.5"}, {})
    assert run_of(one) == run_of(gather_presets("exported.yaml"))


FLAGS = {
    "none": {},
    "raw": {"raw": True},
    "chain": {"chain": "scale,adjust,truncate"},
    "greedy": {"temperature": "0"},
}


def assert_a_stack_is_exported_as_one(here, first, flags):
    settings = gather({"preset": [first, "story"], **flags}, {})
    try:
        text = preset_text(settings, make_job(settings))
    except UsageError:  # the run itself is refused
        return
    here("exported.yaml", text)
    assert run_of(gather_presets("exported.yaml")) == run_of(settings), (first, flags)


def test_presets_that_stack_are_exported_as_one_that_is_the_same(here):
    for first, flags in zip(("creative", "roleplay", "json", "deterministic"), FLAGS.values(), strict=True):
        assert_a_stack_is_exported_as_one(here, first, flags)


def test_show_has_values_and_origins_in_each_form(here, gencli, monkeypatch):
    text = gencli("config", "show", "--preset", "story", "--format", "yaml").out
    assert "max_tokens: 1500  # preset " in text
    here("shown.yaml", text)
    assert run_of(gather_presets("shown.yaml"))[1:] == run_of(gather_presets("story"))[1:]

    found = gencli("config", "show", "--top-k", "4", "--format", "json").json
    assert found["settings"]["n"] == {"value": 1, "origin": "default"}
    assert {"phase": "truncate", "stage": "top_k", "value": "k=4", "origin": "flag --top-k"} in found["chain"]

    monkeypatch.setenv("GENCLI_N", "2")
    here("a.yaml", "max_tokens: 9\ntop_p: 0.5\n")
    lines = gencli("config", "show", "--preset", "a.yaml", "--seed", "4").out.splitlines()
    rows = {tuple(line.split()) for line in lines}
    assert rows >= {
        ("n", "2", "environment", "GENCLI_N"),
        ("max_tokens", "9", "preset", "a.yaml:1"),
        ("seed", "4", "flag", "--seed"),
        ("model", '"tiny"', "default"),
        ("truncate", "top_p", "p=0.5", "preset", "a.yaml:2"),
    }


def test_lint_says_all_faults_of_all_files(here, gencli):
    here("a.yaml", "top_p: 7\ntop_k: x\n")
    here("b.yaml", "n: 0\n")
    here("c.yaml", "n: 1\n")
    result = gencli("config", "lint", "a.yaml", "b.yaml", "c.yaml", "d.yaml")
    assert (result.code, result.out) == (3, "")
    assert [line[:8] for line in result.err.splitlines()] == ["a.yaml:1", "a.yaml:2", "b.yaml:1", "d.yaml: "]
    assert gencli("config", "lint", "c.yaml").out == "1 preset is valid.\n"

    assert gencli("config", "lint", *SHIPPED).code == 0


def test_diff_list_and_path_say_what_differs_and_where_presets_are(here, gencli, tmp_path):
    here("a.yaml", "extends: balanced\ntop_k: 5\n")
    lines = gencli("config", "diff", "balanced", "a.yaml").out.splitlines()
    assert [line.split()[0] for line in lines] == ["value", "order", "top_k.k"]
    here("b.yaml", "extends: balanced\n")
    assert "same run" in gencli("config", "diff", "balanced", "b.yaml").out

    here("configs/mine.yaml", "# My own\nn: 2\n")
    assert "mine               ./configs  My own" in gencli("config", "list").out
    lines = gencli("config", "path").out.splitlines()
    assert [line.split()[0] for line in lines] == [
        "./configs", "user", "bundled", "./templates", "templates", "defaults",
    ]  # fmt: skip
    assert lines[1].endswith("(does not exist)")


def test_an_incomplete_command_or_a_prompt_is_a_usage_error_and_help_goes_to_stdout(gencli, here):
    for arguments in [[], ["diff", "balanced"]]:
        result = gencli("config", *arguments)
        assert (result.code, "--help" in result.err) == (2, True), result.err

    for command in ["show", "export"]:
        result = gencli("config", command, "Once upon a time")
        assert (result.code, "is a prompt" in result.err) == (2, True), command

    for arguments in [["--help"], ["show", "-h"], ["export", "--help"], ["lint", "-h"]]:
        result = gencli("config", *arguments)
        assert (result.code, result.out.isascii()) == (0, True), arguments
        assert "Usage: gencli config" in result.out, arguments


def assert_nothing_heavy_is_imported(*words):
    for arguments in words:
        command = [sys.executable, "-X", "importtime", "-m", "gencli", "config", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ})
        assert done.returncode == 0, done.stderr[-500:]
        imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
        assert imported.isdisjoint(HEAVY), arguments


def test_edit_opens_the_users_defaults_and_checks_them(here, gencli, monkeypatch, tmp_path):
    for editor in ["no-such-editor", "false"]:
        with monkeypatch.context() as patch:
            patch.delenv("VISUAL", raising=False)
            patch.setenv("EDITOR", editor)
            result = gencli("config", "edit")
            assert result.code == 2, editor
            assert f"The editor {editor} " in result.err, editor

    path = tmp_path / "home" / "gencli" / "defaults.yaml"
    monkeypatch.setenv("EDITOR", "sh -c 'echo temperature: warm >> $0'")
    result = gencli("config", "edit")
    assert result.code == 3
    assert f"{path.relative_to(tmp_path)}:" in result.err
    assert path.read_text().startswith("# Your defaults, a preset that every run begins with.")
    path.unlink()
    monkeypatch.setenv("EDITOR", "true")
    assert gencli("config", "edit").out == "1 preset is valid.\n"
    assert str(path) in gencli("config", "path").out
