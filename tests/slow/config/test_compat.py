"""Compat profiles beside their systems."""

import ast
import os
import re
from pathlib import Path

import pytest
import torch

from gencli.config.preset_files import profile_file
from tests.cli.conftest import FAKE
from tests.config.test_compat import ON, settings_of, values_of
from tests.helpers.profiles import PROFILES, far_rows, own_rows, random_rows


def test_a_profile_has_its_systems_values_in_its_order_and_runs(gencli):
    for name in PROFILES:
        found = values_of(settings_of(name))
        assert (list(found), found) == (list(ON[name]), ON[name]), name

    for name in PROFILES:
        flags = ("-t", "0.9", "--max-tokens", "8", "--seed", "3", "-q", "x")
        result = gencli("run", *FAKE, "--compat", name, *flags)
        assert (result.code, result.err) == (0, ""), name
        assert result.out.strip(), name


def test_a_profile_says_what_it_is_what_it_was_checked_against_and_what_differs(gencli):
    for name in PROFILES:
        text = profile_file(name).read_text(encoding="utf-8")
        assert text.startswith("# "), name
        assert re.search(r"^# Checked against .*\d", text, re.MULTILINE), name
        result = gencli("config", "show", "--compat", name)
        said = [line for line in result.err.splitlines() if line.startswith(f"Notice: Compat {name}: ")]
        assert (result.code, len(said) >= 2) == (0, True), name
        assert "A seed gives other tokens" in said[0], name


STAGES = {
    "vllm": ("repetition", "frequency", "presence", "temperature", "min_p", "top_k", "top_p"),
    "sglang": ("repetition", "temperature", "top_k", "top_p", "min_p"),
}

FOLDER = os.environ.get("PEER_WHEELS", "")
VOCAB, ROWS = 300, 10_000

CHAINS = (
    {"top_k": 20},
    {"top_p": 0.813},
    {"min_p": 0.06},
    {"temperature": 0.7, "min_p": 0.02, "top_k": 40, "top_p": 0.913},
    {"temperature": 1.6, "top_k": 5, "top_p": 0.517},
)

EVEN = {"top_k": 1 << 30, "top_p": 1.0, "min_p": 0.0, "temperature": 1.0}


def function_of(path, name, **known):
    """Return a function of a wheel's file, without the module around it."""
    file = Path(FOLDER) / path
    if not FOLDER or not file.is_file():
        pytest.skip(f"PEER_WHEELS has no {path}")
    tree = ast.parse(file.read_text(encoding="utf-8"))
    found = next(node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name)
    found.decorator_list, found.returns = [], None
    for argument in (*found.args.args, *found.args.kwonlyargs):
        argument.annotation = None
    space = {"torch": torch, **known}
    exec(compile(ast.Module([found], []), str(file), "exec"), space)
    return space[name]


def vllm_rows(logits, values):
    found = logits / values["temperature"]
    keep_min_p = function_of("vllm/v1/sample/logits_processor/builtin.py", "apply")
    own = type("MinP", (), {"min_p_count": 1, "min_p": torch.full((len(logits), 1), values["min_p"])})
    found = keep_min_p(own, found)
    cut = function_of("vllm/v1/sample/ops/topk_topp_sampler.py", "apply_top_k_top_p_pytorch")
    k = torch.full((len(logits),), min(values["top_k"], logits.shape[1]))
    p = torch.full((len(logits),), values["top_p"]) if values["top_p"] < 1 else None
    return cut(found, k, p)


def sglang_rows(logits, values):
    cut = function_of("sglang/srt/layers/sampler.py", "top_k_top_p_min_p_sampling_from_probs_torch")
    count = len(logits)
    _, weights, ids, _ = cut(
        (logits / values["temperature"]).softmax(-1),
        torch.full((count,), values["top_k"]),
        torch.full((count,), values["top_p"]),
        torch.full((count,), values["min_p"]),
        values["min_p"] > 0,
        None,
        torch.zeros(count),
        return_filtered_probs=True,
    )
    return torch.zeros_like(logits).scatter(1, ids.long(), weights).log()


def assert_rows_are_those_of(profile, given, *, ties):
    rows = sglang_rows if profile == "sglang" else vllm_rows
    prompts, logits = random_rows(ROWS, VOCAB, ties=ties, extremes=True)
    theirs, own = rows(logits.clone(), {**EVEN, **given}), own_rows(profile, logits, prompts, **given)
    assert far_rows(own, theirs, ties=ties) <= ROWS // 250, (profile, given, ties)


def test_several_stages_make_the_distributions_of_the_system():
    for profile in ("vllm", "sglang"):
        assert_rows_are_those_of(profile, CHAINS[3], ties=False)
