"""What a run on the native decoder imports: PyTorch and small libraries, never transformers."""

import json
import subprocess
import sys

import pytest

HEAVY = ("transformers", "torch._dynamo", "sympy", "huggingface_hub", "accelerate")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--max-tokens", "2", "--log", "Hi"],
        ["run", "--chat", "--max-tokens", "2", "--format", "json", "Hi"],
        ["run", "--model", "tiny", "--draft", "tiny-draft", "--max-tokens", "4", "--top-p", "0.9", "Hi"],
        ["batch", "rows.jsonl", "-o", "out.jsonl", "--max-tokens", "2"],
        ["batch", "rows.jsonl", "--dry-run"],
        ["tokenize", "Hi"],
    ],
    ids=lambda arguments: " ".join(arguments[:4]),
)
def test_the_native_path_does_without_transformers(arguments, tmp_path, monkeypatch):
    (tmp_path / "rows.jsonl").write_text(json.dumps({"prompt": "Hi"}) + "\n")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    code = f"""
import sys
from gencli.cli.app import main
code = main({arguments!r})
print(code, *[name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert done.stderr.splitlines()[-1] == "0", done.stderr
