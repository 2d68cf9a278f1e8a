"""The profiles vllm, vllm-v2 and sglang beside functions of their wheels, where a folder has them unpacked.

    pip download --no-deps -d wheels vllm==0.32.0 sglang==0.5.23
    for wheel in wheels/*.whl; do unzip -qo "$wheel" '*.py' -d wheels/unpacked; done
    PEER_WHEELS=wheels/unpacked pytest tests/config/test_compat_wheels.py

Single functions are taken out of the files, since the packages need a device to be imported. The kernels of
vllm-v2 run on devices only: it is compared with the functions of vllm, on rows without ties.
"""

import ast
import os
from pathlib import Path

import pytest
import torch

from tests.helpers.profiles import far_rows, own_rows, random_rows

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
