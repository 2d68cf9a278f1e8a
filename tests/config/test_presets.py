"""Presets: those that ship, how they are found, how they build on each other, and what is no file."""

import os

import pytest

from gencli.config import preset_files as find
from gencli.config.layers import gather_presets
from gencli.config.preset_files import find_preset, list_presets
from gencli.config.presets import MAX_FILES, expand_preset, load_presets
from gencli.errors import ConfigError
from gencli.yaml_text import PRESET_BOUNDS
from tests.cli.conftest import FAKE, ROOT

SHIPPED = sorted(path.stem for path in (ROOT / "configs").glob("*.yaml"))

WANTED = """neutral precise balanced creative story code json chat brainstorm deterministic
    min-p top-n-sigma creative-dry-xtc roleplay hf-default llama-cpp-default vllm-default""".split()

# What each is for, as values of the run.
MARKS = {
    "neutral": ("top_p", 1.0),
    "precise": ("temperature", 0.2),
    "balanced": ("temperature", 0.7),
    "creative": ("min_p", 0.05),
    "story": ("max_tokens", 1500),
    "code": ("stop", ("\n```",)),
    "json": ("temperature", 0.1),
    "chat": ("chat", True),
    "brainstorm": ("n", 5),
    "deterministic": ("temperature", 0.0),
    "min-p": ("min_p", 0.1),
    "top-n-sigma": ("top_n_sigma", 1.0),
    "creative-dry-xtc": ("min_p", 0.02),
    "roleplay": ("loop", 4),
    "hf-default": ("compat", "hf"),
    "llama-cpp-default": ("compat", "llama-cpp"),
    "vllm-default": ("compat", "vllm"),
}


def test_the_presets_that_are_promised_ship_and_say_what_they_are_for(here):
    assert sorted(MARKS) == sorted(WANTED) == SHIPPED

    assert [(name, label) for name, label, _ in list_presets()] == [(name, "bundled") for name in SHIPPED]

    for name in SHIPPED:
        lines = (ROOT / "configs" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
        assert [line[:2] for line in lines[:2]] == ["# ", "# "], name


def test_the_wheel_has_the_presets_where_they_are_looked_for(here, monkeypatch, tmp_path):
    import tomllib

    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["build"]
    assert build["targets"]["wheel"]["force-include"] == {"configs": "gencli/configs"}
    here("site/gencli/configs/mine.yaml", "n: 2\n")
    monkeypatch.setattr(find, "_PACKAGE", tmp_path / "site" / "gencli")
    assert [name for name, _, _ in list_presets()] == ["mine"]


def test_the_nearer_folder_wins(here):
    bundled = find_preset("chat")
    user = here("home/gencli/presets/chat.yaml", "n: 2\n")
    assert find_preset("chat") == user != bundled
    local = here("configs/chat.yaml", "n: 3\n")
    assert find_preset("chat") == local
    assert [label for name, label, _ in list_presets() if name == "chat"] == ["./configs"]


def test_a_missing_preset_and_a_fault_end_a_run_with_3(here, gencli):
    for name, said in [("balancd", "There is no preset 'balancd'."), ("./x.yaml", "no preset file ./x.yaml")]:
        result = gencli("run", "--preset", name, "x")
        assert (result.code, said in result.err) == (3, True), result.err

    here("a.yaml", "temprature: 1\ntop_p: 7\n")
    assert "Did you mean ./a.yaml?" in gencli("run", "--preset", "a", "x").err
    result = gencli("run", "--preset", "a.yaml", "x")
    assert (result.code, result.out) == (3, "")
    assert result.err.startswith(
        "Error: a.yaml:1:1: There is no key 'temprature'. Did you mean 'temperature'?\n"
    )
    assert "2 faults" in result.err


def test_presets_stack_left_to_right_and_a_chain_gives_order_and_values(here, chain):
    here("base.yaml", "top_k: 1\ntop_p: 0.1\nmin_p: 0.1\n")
    here("sub/other.yaml", "top_p: 0.2\nmin_p: 0.2\n")
    top = here("sub/top.yaml", "extends: [../base.yaml, ./other.yaml]\nmin_p: 0.3\n")
    settings = gather_presets(str(top))
    assert [settings[key] for key in ("top_k", "top_p", "min_p")] == [1, 0.2, 0.3]
    assert gather_presets(str(top), "./base.yaml")["min_p"] == 0.1
    assert [preset.path.name for preset in expand_preset(top)] == ["base.yaml", "other.yaml", "top.yaml"]

    here(
        "a.yaml", "chain: [penalties, top_k: {k: 4, ties: keep},\n  temperature: 0.5]\npresence_penalty: 1\n"
    )
    rows = chain("--preset", "a.yaml")
    assert [row[0] for row in rows] == ["presence", "top_k", "top_k", "temperature"]
    assert rows[1][1:] == ("k=4", "preset a.yaml:1")


def test_presets_without_bound_are_refused(here):
    for level in range(20):
        here(f"{level}.yaml", f"extends: [./{level + 1}.yaml, ./{level + 1}.yaml]\n")
    here("20.yaml", "n: 1\n")
    with pytest.raises(ConfigError, match=f"more than {MAX_FILES} files"):
        load_presets(["./0.yaml"])

    for level in range(MAX_FILES + 2):
        here(f"{level}.yaml", f"extends: ./{level + 1}.yaml\n")
    with pytest.raises(ConfigError, match=f"more than {MAX_FILES} deep"):
        load_presets(["./0.yaml"])

    here("a.yaml", "#" * PRESET_BOUNDS.max_bytes + "\nn: 1\n")
    with pytest.raises(ConfigError, match="a preset has at most"):
        load_presets(["a.yaml"])


def test_yaml_means_what_it_says(here, monkeypatch):
    for text, key, value in [
        ("system: no", "system", "no"),
        ("system: '1:30'", "system", "1:30"),
        ("system: 2020-01-01", "system", "2020-01-01"),
        ("max_time: 1e-3", "max_time", 0.001),
        ("max_tokens: 010", "max_tokens", 10),
        ("stop: 'a\\n'", "stop", ("a\\n",)),
        ('stop: "a\\n"', "stop", ("a\n",)),
        ("stop: [a, b]", "stop", ("a", "b")),
        ("logit_bias: {42: 1.5, ' fox': -.inf}", "logit_bias", ((42, 1.5), (" fox", float("-inf")))),
        ("ban: &a [x]\nstop: *a", "stop", ("x",)),
        ("draft_tree: [[0], [0, 0], [1]]", "draft_tree", "[[0],[1],[0,0]]"),
        ("draft_tree: '[[0],[1]]'", "draft_tree", "[[0],[1]]"),
        ("draft_tree: off", "draft_tree", "off"),
    ]:
        here("a.yaml", text)
        assert gather_presets("a.yaml")[key] == value, text

    here("a.yaml", "# Nothing yet\n")
    assert not gather_presets("a.yaml").is_given("n")

    monkeypatch.setenv("SECRET", "x")
    here("a.yaml", "system: '${SECRET} $(id) `id`'\n")
    assert gather_presets("a.yaml")["system"] == "${SECRET} $(id) `id`"


def test_a_wrong_draft_tree_has_its_place_in_the_file(here):
    for text, place in [
        ("n: 1\ndraft_tree: [[0], [a]]", 'a.yaml:2:20: draft_tree has "a" in it, where there has to be'),
        ("draft_tree: [[64]]", "a.yaml:1:15: draft_tree has 64 in it, where there has to be a number >= 0"),
        ("draft_tree: [[0], [2]]", "a.yaml:1:13: draft_tree: The draft tree has [2], but not [1]. Add [1]."),
        ("draft_tree: 5", "a.yaml:1:13: draft_tree is 5, but has to be a text or a list."),
        ("draft_tree: 4x0x9", "a.yaml:1:13: draft_tree: The depth of the draft tree is 0, but has to be 1"),
    ]:
        here("a.yaml", text)
        with pytest.raises(ConfigError) as caught:
            load_presets(["a.yaml"])
        assert caught.value.message.startswith(place), caught.value.message


NEEDS_PIPES = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")

KINDS = {
    "it is a folder": os.mkdir,
    "it is a pipe": os.mkfifo,
    "No such file": lambda path: os.symlink("/nowhere/at/all", path),
}
PLACES = [
    ("home/gencli/defaults.yaml", ()),
    ("home/gencli/presets/mine.yaml", ("--preset", "mine")),
    ("configs/balanced.yaml", ("--preset", "balanced")),
    ("mine.yaml", ("--preset", "./mine.yaml")),
    ("home/gencli/aliases.json", ("--model", "other")),
]


@NEEDS_PIPES
@pytest.mark.parametrize("reason", KINDS)
def test_what_is_no_file_is_an_error_of_what_reads_it(here, gencli, tmp_path, reason):
    for name, flags in PLACES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        KINDS[reason](path)
        done = gencli("run", *FAKE, "--max-tokens", "2", "hi", *flags)
        assert done.code == 3, name
        assert f"cannot be read: {reason}" in done.err, name
        assert gencli("config", "list").code == 0, name
        path.rmdir() if path.is_dir() else path.unlink()


@NEEDS_PIPES
@pytest.mark.parametrize("make", KINDS.values(), ids=KINDS)
def test_a_template_by_name_that_is_no_file_is_said(here, gencli, tmp_path, make):
    (tmp_path / "templates").mkdir()
    make(tmp_path / "templates" / "mine.jinja")
    done = gencli("run", *FAKE, "--max-tokens", "2", "hi", "--template", "mine")
    assert done.code == 2
    assert "mine.jinja exists, but is not a file" in done.err


@NEEDS_PIPES
def test_a_plugin_that_is_no_file_is_said(here, gencli, tmp_path):
    os.mkdir(tmp_path / "folder.py")
    os.mkfifo(tmp_path / "pipe.py")
    for name, reason in [
        ("folder.py", "it is a folder"),
        ("pipe.py", "it is a pipe"),
        ("no.py", "no such file"),
    ]:
        done = gencli("run", *FAKE, "--max-tokens", "2", "hi", "--plugin", name)
        assert done.code == 4, name
        assert reason in done.err, name
