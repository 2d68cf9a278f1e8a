"""Pages, pictures and notebooks are what the commands print."""

import ast
import json
import re
import socket
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from scripts import make_pictures
from scripts.make_pictures import PICTURES, THEMES
from tests.helpers.quick import quick_gencli, quick_path
from tests.test_pages import COMMANDS, FILES, MORE, ROOT, STRUCTURED


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


STALE = "run scripts/make_pictures.py"


def texts(picture):
    """What the picture shows of the command and of its output, the same on light and dark pages."""
    light, dark = (
        make_pictures.shown_text(FILES[picture, theme].read_text(encoding="utf-8")) for theme in THEMES
    )
    assert light == dark, STALE
    command = f"$ {picture.command}\n"
    assert light.startswith(command), STALE
    return light.removeprefix(command)


def printed(text):
    """Lines without what a picture cannot show: spaces at their ends, and lines that are empty."""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def test_a_picture_has_the_text_that_its_command_prints():
    for picture in [one for one in PICTURES if not one.is_live]:
        assert printed(texts(picture)) == printed(make_pictures.output(picture, [str(quick_gencli())])), STALE


def test_a_live_picture_has_the_beginnings_of_the_texts_of_its_command():
    for picture in [one for one in PICTURES if one.is_live]:
        whole = json.loads(
            make_pictures.output(
                replace(picture, command=f"{picture.command} --format json"), [str(quick_gencli())]
            )
        )
        lines = printed(texts(picture))
        assert len(lines) == len(whole["texts"]), picture
        for number, (line, text) in enumerate(zip(lines, whole["texts"], strict=True), start=1):
            label, beginning = f"[1.{number}] ", line.partition("] ")[2]
            assert line.startswith(label), STALE
            assert beginning, STALE
            assert " ".join(text.split()).startswith(beginning), STALE


PAGE = Path(__file__).parents[2] / "docs" / "python.md"


def test_the_blocks_of_the_page_run(capsys):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.S)
    names = {"__name__": "page"}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), names)
    assert len(blocks) > 8
    assert capsys.readouterr().out


NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))


def run_cell(source, names):
    """Run the code of a cell; return the value of an expression at its end, which a notebook shows."""
    body = ast.parse(source).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "cell", "exec"), names)
    return last and eval(compile(ast.Expression(last.value), "cell", "eval"), names)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_cells_run_and_show_themselves(path, capsys):
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert notebook["nbformat"] == 4
    names, shown = {"__name__": "notebook"}, []
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert (cell["outputs"], cell["execution_count"]) == ([], None), "clear the outputs"
        if (value := run_cell("".join(cell["source"]), names)) is not None:
            shown.append(value._repr_html_())
    assert len(shown) >= 4
    assert not any("<script" in html for html in shown)
    printed = capsys.readouterr()
    assert printed.out
    assert printed.err == ""


def test_there_is_a_notebook():
    assert NOTEBOOKS
