"""The rules of the house: imports go down, nothing goes round, one place prints, start-up is light."""

import ast
import os
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PATHS = sorted(path for package in ("gencli", "processors") for path in (ROOT / package).rglob("*.py"))
HEAVY = ("torch", "transformers", "tokenizers", "numpy", "xgrammar", "llguidance", "jinja2")
# From the top down: a module imports its own layer and those below it, never one above.
LAYERS = (("gencli.__main__",), ("gencli.cli",), ("gencli",), ("processors",))
# A library of its own is imported by one file.
OWN_LIBRARY = {
    "processors.grammar.backends.xgrammar": "xgrammar",
    "processors.grammar.backends.llguidance": "llguidance",
    "processors.kernels.bitmask_triton": "triton",
    "processors.kernels.token_probability_triton": "triton",
}


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {module_name(path): ast.parse(path.read_text(encoding="utf-8")) for path in PATHS}


def is_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def walk(node, *, typing_too=True):
    """All nodes, with or without those that only the type checker sees."""
    yield node
    for child in ast.iter_child_nodes(node):
        if typing_too or not is_type_checking(child):
            yield from walk(child, typing_too=typing_too)


def imports(name, **kwargs):
    """The modules that a module imports, inside functions too."""
    for node in walk(TREES[name], **kwargs):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} uses a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in TREES else str(node.module)


def layer(name):
    return next(
        place
        for place, prefixes in enumerate(LAYERS)
        if any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)
    )


def parametrize_modules(test):
    return pytest.mark.parametrize("name", TREES)(test)


@parametrize_modules
def test_imports_go_down_only(name):
    ours = [target for target in imports(name) if target.split(".")[0] in ("gencli", "processors")]
    assert [target for target in ours if layer(target) < layer(name)] == []


def test_no_module_imports_itself_in_a_round():
    graph = {name: {t for t in imports(name, typing_too=False) if t in TREES and t != name} for name in TREES}
    TopologicalSorter(graph).prepare()  # CycleError names the round


@pytest.mark.parametrize("name", [name for name in TREES if name.split(".")[0] == "processors"])
def test_processors_needs_torch_and_the_standard_library_only(name):
    allowed = {*sys.stdlib_module_names, "processors", "torch", OWN_LIBRARY.get(name)}
    assert {target.split(".")[0] for target in imports(name)} <= allowed


@pytest.mark.parametrize("name", [name for name in TREES if name != "gencli.cli.terminal.render"])
def test_only_render_prints(name):
    calls = [node for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)]
    assert [ast.unparse(call) for call in calls if ast.unparse(call.func) == "print"] == []
    assert [ast.unparse(call) for call in calls if ast.unparse(call.func).startswith("sys.std")] == [
        ast.unparse(call) for call in calls if ast.unparse(call.func).startswith("sys.stdin")
    ]


@pytest.mark.parametrize("name", [name for name in TREES if not name.startswith("gencli.bench")])
def test_no_value_goes_to_the_device_in_a_way_that_waits_for_it(name):
    calls = [node for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)]
    made = [call for call in calls if ast.unparse(call.func) == "torch.tensor"]
    assert [ast.unparse(call) for call in made if any(word.arg == "device" for word in call.keywords)] == []


SCRIPTS = {f"scripts/{path.stem}": ast.parse(path.read_text()) for path in (ROOT / "scripts").glob("*.py")}


@pytest.mark.parametrize("name", [name for name in {**TREES, **SCRIPTS} if name != "gencli.runtime.wiring"])
def test_the_engine_is_made_in_one_place(name):
    tree = {**TREES, **SCRIPTS}[name]
    calls = [ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)]
    assert not {"Engine", "ChoosingEngine"} & set(calls)


def targets(node):
    """Names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        found = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (name.id for target in found for name in ast.walk(target) if isinstance(name, ast.Name))


@parametrize_modules
def test_all_is_what_a_module_exports(name):
    tree = TREES[name]
    defined = {target for node in tree.body for target in targets(node)}
    public = {target for target in defined if not target.startswith("_") and len(target) > 1}  # no TypeVars
    imported = {
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    exported = next((node.value for node in tree.body if "__all__" in targets(node)), None)
    if exported is None:
        assert not public, f"{name} has no __all__"
        return
    names = ast.literal_eval(exported)
    assert len(names) == len(set(names))
    assert public <= set(names) <= defined | imported


@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["--version"],
        [],
        ["run", "--help"],
        ["--show-completion", "bash"],
        ["run", "--show-chain"],
        ["chat", "--help"],
        ["batch", "--help"],
        ["models", "list"],
        ["models", "show", "tiny"],
        ["completion", "bash"],
        ["log", "list"],
    ],
    ids=" ".join,
)
def test_start_up_imports_nothing_heavy(arguments):
    more = () if arguments and arguments[0] not in ("--help", "--version") else ("typer", "rich")
    code = f"""
import sys
from gencli.cli.app import main
try:
    main({arguments!r})
except SystemExit:
    pass
found = [name for name in {(*HEAVY, *more)!r} if name in sys.modules]
sys.exit(" ".join(found) or 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


def test_completion_imports_nothing_heavy():
    asked = {"_GENCLI_COMPLETE": "complete_bash", "COMP_WORDS": "gencli run --samp", "COMP_CWORD": "2"}
    command = [sys.executable, "-X", "importtime", "-m", "gencli"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env={**os.environ, **asked})
    assert done.stdout.split() == ["--sampler"]
    assert {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}.isdisjoint(HEAVY)
