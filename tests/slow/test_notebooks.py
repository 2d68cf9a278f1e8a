"""The notebooks run from top to bottom, and what their cells show is HTML without scripts."""

import ast
import json
from pathlib import Path

import pytest

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
