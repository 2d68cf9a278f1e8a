"""The commands of the README and of pages in docs run as they are written."""

import json
import socket
import subprocess

import pytest

from tests.helpers.quick import quick_path
from tests.test_readme import COMMANDS, MORE, ROOT, STRUCTURED


@pytest.mark.parametrize("command", [*COMMANDS, *MORE, *STRUCTURED])
def test_the_command_runs(command):
    done = subprocess.run(
        command, shell=True, capture_output=True, text=True, cwd=ROOT, env=quick_path(), check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_the_file_of_the_batch_section_gets_its_results(tmp_path):
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    script = page.partition("\n## Many prompts\n")[2].partition("```sh\n")[2].partition("```\n")[0]
    done = subprocess.run(["sh", "-ec", script], cwd=tmp_path, env=quick_path(), check=False)
    assert done.returncode == 0
    results = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [len(result.get("texts", ["one"])) for result in results] == [1, 2, 1]
    assert results[2]["text"] == "Biscuit belongs to Lena."


def test_the_server_of_the_readme_answers(tmp_path):
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    script = page.partition("\n## A server")[2].partition("```sh\n")[2].partition("```\n")[0]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
    script = script.replace("8000", port)
    done = subprocess.run(
        ["sh", "-ec", script], cwd=tmp_path, env=quick_path(), stdout=subprocess.PIPE, check=True
    )
    (choice,) = json.loads(done.stdout)["choices"]
    assert choice["finish_reason"] == "length"
