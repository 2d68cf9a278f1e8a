"""The rules of the house: imports go down, nothing goes round, one place prints, start-up is light."""

import ast
import os
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from gencli.batch.options import OWN
from gencli.config.options.run import OPTIONS
from gencli.scoring.options import SCORE_OPTIONS
from gencli.server.options import OWN as OF_SERVER

ROOT = Path(__file__).parent.parent
PATHS = sorted(path for package in ("gencli", "processors") for path in (ROOT / package).rglob("*.py"))
HEAVY = (
    "torch",
    "transformers",
    "tokenizers",
    "numpy",
    "xgrammar",
    "llguidance",
    "jinja2",
    "starlette",
    "uvicorn",
)
# From the top down: a module imports its own layer and those below it, never one above.
LAYERS = (("gencli.__main__",), ("gencli.cli",), ("gencli",), ("processors",))
# A library of its own is imported by one file.
OWN_LIBRARY = {
    "processors.grammar.backends.xgrammar": "xgrammar",
    "processors.grammar.backends.llguidance": "llguidance",
    "processors.fused": "numpy",
    "processors.tail": "numpy",
    "processors.noise": "numpy",
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


def violations(rule, names=TREES):
    """What each module does against a rule: {module: what `rule` returns for it}, where that is anything."""
    return {name: found for name in names if (found := rule(name))}


def of_package(package):
    return [name for name in TREES if f"{name}.".startswith(f"{package}.")]


@cache
def calls(name):
    """The calls of a module, each with the function that it names."""
    found = [node for node in ast.walk(TREES[name]) if isinstance(node, ast.Call)]
    return [(ast.unparse(call.func), call) for call in found]


def test_the_rules_see_every_module():
    assert len(of_package("gencli")) > 250
    assert len(of_package("processors")) > 50
    assert set(of_package("gencli") + of_package("processors")) == set(TREES)


def test_files_and_functions_are_short():
    """At most 300 and 50 lines; a Triton kernel is one function."""

    def long(name):
        defined = [node for node in ast.walk(TREES[name]) if isinstance(node, ast.FunctionDef)]
        return [one.name for one in defined if one.end_lineno - one.lineno >= 50]

    assert [path.name for path in PATHS if path.read_text(encoding="utf-8").count("\n") > 300] == []
    assert violations(long, [name for name in TREES if not name.endswith("_triton")]) == {}


def test_imports_go_down_only():
    def upward(name):
        ours = [target for target in imports(name) if target.split(".")[0] in ("gencli", "processors")]
        return [target for target in ours if layer(target) < layer(name)]

    assert violations(upward) == {}


def test_no_module_imports_itself_in_a_round():
    graph = {name: {t for t in imports(name, typing_too=False) if t in TREES and t != name} for name in TREES}
    TopologicalSorter(graph).prepare()  # CycleError names the round


def test_structured_output_is_a_library_without_settings():
    above = ("gencli.batch", "gencli.cli", "gencli.config", "gencli.engine", "gencli.runtime")

    def upward(name):
        return [target for target in imports(name) if target.startswith(above)]

    assert violations(upward, of_package("gencli.structured")) == {}


def test_processors_needs_torch_and_the_standard_library_only():
    def foreign(name):
        own = "triton" if name.endswith("_triton") else OWN_LIBRARY.get(name)
        allowed = {*sys.stdlib_module_names, "processors", "torch", own}
        return {target.split(".")[0] for target in imports(name)} - allowed

    assert violations(foreign, of_package("processors")) == {}


def test_only_render_prints():
    def printing(name):
        used = [function for function, _ in calls(name)]
        streams = [one for one in used if one.startswith("sys.std") and not one.startswith("sys.stdin")]
        return streams + [one for one in used if one == "print"]

    assert violations(printing, TREES.keys() - {"gencli.cli.terminal.render"}) == {}


# A call that declares an option; its first argument, or its leading texts, are the flags.
DECLARES = ("Option", "_for_stage", "_for_penalties")
# A long flag of gencli; torchrun and llama.cpp have options of their own.
A_FLAG = re.compile(r"(?<!torchrun )(?<!llama\.cpp )(?<![\w-])--[a-z][a-z-]+")
KEY = re.compile(r"`([a-z]\w*)`")
# What backticks hold in a message beside keys of options: fields of results, a field of a stage.
OTHER_CODE = {"error", "kind", "matched"}


def texts(name, *, docstrings=False):
    """The texts in a module's code, or docstrings too; never the flags of an option that is declared."""
    tree = TREES[name]
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and not docstrings}
    for function, call in calls(name):
        if function in DECLARES:
            left_out |= {id(node) for first in call.args[:1] for node in ast.walk(first)}
            left_out |= {id(node) for node in call.args if function != "Option"}
    constants = (node for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [node.value for node in constants if isinstance(node.value, str) and id(node) not in left_out]


# peers has the names that other tools, or habit, give to options and commands.
BELOW_CLI = [
    name for name in TREES if layer(name) > LAYERS.index(("gencli.cli",)) and name != "gencli.config.peers"
]


def test_only_the_command_line_knows_flags():
    def flags(name):
        return [found for text in texts(name, docstrings=True) for found in A_FLAG.findall(text)]

    makes_flags = {"gencli.config.options.flags"}  # of keys; its docstring has a table of both
    assert violations(flags, set(BELOW_CLI) - makes_flags) == {}


def test_messages_name_options_by_keys_that_exist():
    keys = {entry.key for entry in (*OPTIONS, *OWN, *OF_SERVER, *SCORE_OPTIONS)}

    def unknown(name):
        return {key for text in texts(name) for key in KEY.findall(text)} - keys - OTHER_CODE

    assert violations(unknown, BELOW_CLI) == {}


# Benches make values on the device outside of a step.
BENCHES = {name for name in TREES if name.startswith("gencli.bench")}
SCRIPTS = {f"scripts/{path.stem}": ast.parse(path.read_text()) for path in (ROOT / "scripts").glob("*.py")}


def test_no_value_goes_to_the_device_in_a_way_that_waits_for_it():
    def waiting(name):
        made = [call for function, call in calls(name) if function == "torch.tensor"]
        return [ast.unparse(call) for call in made if any(word.arg == "device" for word in call.keywords)]

    assert violations(waiting, TREES.keys() - BENCHES) == {}


def test_the_engine_is_made_in_one_place():
    trees = {**TREES, **SCRIPTS}
    made = {
        name
        for name, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Engine"
    }
    assert made == {"gencli.runtime.wiring"}


def targets(node):
    """Names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Assign | ast.AnnAssign):
        found = node.targets if isinstance(node, ast.Assign) else [node.target]
        yield from (name.id for target in found for name in ast.walk(target) if isinstance(name, ast.Name))


def exports(name):
    """What is wrong with a module's `__all__`."""
    tree = TREES[name]
    defined = {target for node in tree.body for target in targets(node)}
    public = {target for target in defined if not target.startswith("_") and len(target) > 1}  # no TypeVars
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    imported = {alias.name for node in froms for alias in node.names}
    exported = next((node.value for node in tree.body if "__all__" in targets(node)), None)
    if exported is None:
        return {"no __all__ for": public} if public else {}
    names = ast.literal_eval(exported)
    wrong = {
        "twice": [one for one in set(names) if names.count(one) > 1],
        "left out": public - set(names),
        "unknown": set(names) - defined - imported,
    }
    return {kind: found for kind, found in wrong.items() if found}


def test_all_is_what_a_module_exports():
    assert violations(exports) == {}


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
        ["serve", "--help"],
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
