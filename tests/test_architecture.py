"""The rules of the house: imports go down, nothing goes round, one place prints, start-up is light."""

import ast
import gc
import importlib
import re
import sys
from collections import Counter
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

from gencli.batch.batch_options import OWN, SCORE_OPTIONS
from gencli.config.run_options import OPTIONS
from gencli.server.serve_options import OWN as OF_SERVER

ROOT = Path(__file__).parent.parent
PATHS = sorted(path for package in ("gencli", "processors") for path in (ROOT / package).rglob("*.py"))

# The rooms from the top down: a module imports its own room and those below it. `*`: what no other line has.
# Modules directly in processors import its folders and are imported by them, so these are one room.
ROOMS = (
    "gencli.__main__",
    "gencli.cli",
    "gencli.lm_eval",
    "gencli.imports",
    "gencli.run_log",
    "gencli.chat",
    "gencli.batch",
    "gencli.server",
    "gencli",
    "gencli.runtime",
    "gencli.scoring",
    "gencli.explain",
    "gencli.results",
    "gencli.engine",
    "gencli.config",
    "gencli.plugins",
    "gencli.speculative",
    "gencli.text",
    "gencli.templates",
    "gencli.structured",
    "gencli.models",
    "gencli.core",
    "gencli.*",
    "processors.testing",
    "processors.*",
)

# The imports that go up. A line that is no longer needed has to go; no line is added.
UPWARD = """
gencli.config.option_names -> gencli.batch.batch_options
gencli.config.option_names -> gencli.server.serve_options
"""

# A library of its own is imported by one file.
OWN_LIBRARY = {
    "processors.grammar.xgrammar": "xgrammar",
    "processors.grammar.llguidance": "llguidance",
    "processors.fused": "numpy",
}


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


NAMES = {module_name(path): path for path in PATHS}


@cache
def trees():
    """The code of all modules; Python's collector would look through the growing trees many times."""
    gc.disable()
    code = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in NAMES.items()}
    gc.freeze()
    gc.enable()
    return code


def tree(name):
    return trees()[name]


def is_type_checking(node):
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def walk(node, *, typing_too=True):
    """All statements, with or without those that only the type checker sees."""
    nodes = [node]
    while nodes:
        yield (node := nodes.pop())
        children = (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr))
        nodes += [child for child in children if typing_too or not is_type_checking(child)]


@cache
def imports(name, *, typing_too=True):
    """The modules that a module imports, inside functions too."""
    modules = []
    for node in walk(tree(name), typing_too=typing_too):
        if isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name} uses a relative import"
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            modules += [target if target in NAMES else node.module for target in full]
    return modules


def room(name):
    """The place of a module's room in ROOMS."""
    if name in ROOMS:
        return ROOMS.index(name)
    package, folder = name.split(".")[0], ".".join(name.split(".")[:2])
    return ROOMS.index(folder if folder in ROOMS else f"{package}.*")


def violations(rule, names=NAMES):
    """What each module does against a rule: {module: what `rule` returns for it}, where that is anything."""
    return {name: found for name in names if (found := rule(name))}


def of_package(package):
    return [name for name in NAMES if f"{name}.".startswith(f"{package}.")]


@cache
def calls(name):
    """The calls of a module, each with the function that it names."""
    return [(ast.unparse(node.func), node) for node in ast.walk(tree(name)) if isinstance(node, ast.Call)]


def test_the_rules_see_every_module():
    assert set(of_package("gencli") + of_package("processors")) == set(NAMES)
    assert all(any(room(name) == place for name in NAMES) for place in range(len(ROOMS)))


def test_imports_go_down_but_for_those_that_are_listed():
    def upward(name):
        return [target for target in imports(name) if target in NAMES and room(target) < room(name)]

    found = {f"{name} -> {target}" for name in NAMES for target in upward(name)}
    listed = set(UPWARD.strip().splitlines())
    assert found - listed == set(), "a new import goes up"
    assert listed - found == set(), "an import that went up is gone: take its line out of UPWARD"


def test_no_module_imports_itself_in_a_round():
    graph = {name: {t for t in imports(name, typing_too=False) if t in NAMES and t != name} for name in NAMES}
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


# What prints: the command line, all in one module, and the bar of an LLM, which has no command line above it.
PRINTS = {"gencli.cli.render", "gencli.runtime.completion"}


def test_only_render_and_the_bar_print():
    def printing(name):
        used = [function for function, _ in calls(name)]
        streams = [one for one in used if one.startswith("sys.std") and not one.startswith("sys.stdin")]
        return streams + [one for one in used if one == "print"]

    assert violations(printing, NAMES.keys() - PRINTS) == {}


# A call that declares an option; its first argument, or its leading texts, are the flags.
DECLARES = ("Option", "_for_stage", "_for_penalties")

# A long flag of gencli; torchrun and llama.cpp have options of their own.
A_FLAG = re.compile(r"(?<!torchrun )(?<!llama\.cpp )(?<![\w-])--[a-z][a-z-]+")
KEY = re.compile(r"`([a-z]\w*)`")

# What backticks hold in a message beside keys of options: fields of results, a field of a stage.
OTHER_CODE = {"error", "kind", "matched"}


def texts(name, *, docstrings=False):
    """The texts in a module's code, or docstrings too; never the flags of an option that is declared."""
    nodes = list(ast.walk(tree(name)))
    left_out = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and not docstrings}
    for function, call in calls(name):
        if function in DECLARES:
            left_out |= {id(node) for first in call.args[:1] for node in ast.walk(first)}
            left_out |= {id(node) for node in call.args if function != "Option"}
    constants = (node for node in nodes if isinstance(node, ast.Constant))
    return [node.value for node in constants if isinstance(node.value, str) and id(node) not in left_out]


# peers has the names that other tools, or habit, give to options and commands.
BELOW_CLI = [
    name for name in NAMES if room(name) > ROOMS.index("gencli.cli") and name != "gencli.config.option_names"
]


def test_only_the_command_line_knows_flags():
    def flags(name):
        return [found for text in texts(name, docstrings=True) for found in A_FLAG.findall(text)]

    makes_flags = {"gencli.config.option_names"}  # of keys; its docstring has a table of both
    assert violations(flags, set(BELOW_CLI) - makes_flags) == {}


def test_messages_name_options_by_keys_that_exist():
    keys = {entry.key for entry in (*OPTIONS, *OWN, *OF_SERVER, *SCORE_OPTIONS)}

    def unknown(name):
        return {key for text in texts(name) for key in KEY.findall(text)} - keys - OTHER_CODE

    assert violations(unknown, BELOW_CLI) == {}


def test_no_value_goes_to_the_device_in_a_way_that_waits_for_it():
    def waiting(name):
        made = [call for function, call in calls(name) if function == "torch.tensor"]
        return [ast.unparse(call) for call in made if any(word.arg == "device" for word in call.keywords)]

    assert violations(waiting) == {}


def test_the_engine_is_made_in_one_place():
    scripts = {
        path.name: ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.glob("scripts/**/*.py")
    }
    makers = {
        name
        for name, code in ({name: tree(name) for name in NAMES} | scripts).items()
        for node in ast.walk(code)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Engine"
    }
    assert makers == {"gencli.runtime.wiring"}


def test_a_class_name_stands_for_one_idea():
    files = {}
    for name in NAMES:
        for node in ast.walk(tree(name)):
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name, []).append(name)
    assert {name: places for name, places in files.items() if len(places) > 1} == {}


def test_a_file_name_stands_for_one_idea():
    # Both packages have errors, which callers import by these paths.
    stems = [path.stem for path in PATHS if path.stem not in ("__init__", "errors")]
    assert [stem for stem, count in Counter(stems).items() if count > 1] == []


def test_what_is_public_is_there():
    for name in ("gencli", "processors", "processors.testing"):
        package = importlib.import_module(name)
        assert [one for one in package.__all__ if not hasattr(package, one)] == [], name
        assert sorted(set(package.__all__)) == sorted(package.__all__), name
