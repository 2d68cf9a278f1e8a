"""Every way for a plugin to be broken: listed with its error, in no one's way, exit 4 when it is named."""

import pytest

from gencli.errors import PluginError
from gencli.plugins.plugin_registry import make_registry
from tests.plugins.conftest import ONLY, STAGE

DECLARED = 'param(-1, "The one id that may be chosen; -1 is off.", ge=-1)'
APPLY = STAGE[STAGE.index("    def apply") :]
BROKEN = {
    "syntax": ("def", "SyntaxError"),
    "import": ("import no_such_module", "No module named 'no_such_module'"),
    "exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "nothing in it": ("x = 1", "defines no subclass of processors.Processor"),
    "no name": (ONLY.replace('name = "only"', ""), "Only has no name"),
    "bad name": (ONLY.replace('"only"', '"Only One"'), "Only has the name 'Only One'"),
    "no phase": (ONLY.replace("phase = Phase.CONSTRAIN", ""), "Only has no phase"),
    "bad phase": (ONLY.replace("Phase.CONSTRAIN", '"first"'), "Only has the phase 'first'"),
    "no params": (ONLY.replace("    Params = OnlyParams", ""), "Only has no Params"),
    "foreign params": (ONLY.replace("Params = OnlyParams", "Params = dict"), "Only has as Params dict"),
    "bare params": (ONLY.replace("Params = OnlyParams", "Params = Params"), "Only has Params Params without"),
    "undeclared": (ONLY.replace(DECLARED, "-1"), "the field OnlyParams.id without a declaration"),
    "reserved": (ONLY.replace("    id: int", "    when: int = param(0, 'x.')\n    id: int"),
                 "the field OnlyParams.when, which every stage has"),
    "bad default": (ONLY.replace("param(-1,", 'param("x",'), "a default in OnlyParams that is not valid"),
    "on by default": (ONLY.replace("ge=-1)", "ge=-1)\n    def is_off(self): return False"),
                      "is on with the defaults of OnlyParams"),
    "no apply": (ONLY.replace(APPLY, ""), r"Only has no apply. Expected: apply(self, logits, rows)"),
    "bad apply": (ONLY.replace("(self, logits, rows)", "(self, logits)"), "Only has apply(self, logits)"),
    "bad commit": (ONLY + "    def commit(self, slot): pass\n", "Only has commit(self, slot)"),
}  # fmt: skip


def test_the_message_says_what_was_seen_and_a_run_that_names_it_exits_with_4(run, plugin):
    for number, (name, (code, message)) in enumerate(BROKEN.items()):
        path = plugin(code, f"plugin_{number}.py")
        with pytest.raises(PluginError) as caught:
            make_registry([str(path)])
        assert message in caught.value.message, name
        assert str(path) in caught.value.message, name
        done = run("--plugin", path, "hi")
        assert (done.code, done.out) == (4, ""), name
        assert message in done.err, name


def test_what_is_no_plugin_exits_with_4_or_2(run, plugin):
    for target in ["nowhere.py", "no_such_module:Name", "json:nothing", "json:__name__"]:
        assert run("--plugin", target, "hi").code == 4, target

    assert run("--plugin", "nothing", "hi").code == 2

    path = plugin(ONLY.replace("ids = torch", 'raise KeyError("lost")\n        ids = torch'))
    done = run("--plugin", path, "--stage", "only=97", "hi")
    assert done.code == 4
    assert "'only'" in done.err


def test_an_installed_one_is_in_nobodys_way(install, gencli, run):
    install("broken_module", "1 / 0", shattered="Only")
    assert gencli("--help").code == 0
    assert gencli("run", "--help").code == 0
    assert run("--seed", 1, "--max-tokens", 2, "hi").code == 0
    listed = gencli("stages", "list")
    assert listed.code == 0
    (line,) = [line for line in listed.out.splitlines() if line.startswith("broken")]
    assert "shattered" in line
    assert "ZeroDivisionError" in line
    assert line.endswith("gencli-test 1.2")


def test_an_installed_one_ends_the_run_that_names_its_stage(install, run, monkeypatch):
    install("broken_named", "1 / 0", shattered="Only")
    assert run("--stage", "shattered=1", "hi").code == 4
    monkeypatch.setenv("GENCLI_NO_PLUGINS", "1")
    assert run("--stage", "shattered=1", "hi").code == 2


def test_an_error_has_its_file_and_line_and_debug_the_traceback(run, gencli, plugin):
    code = ONLY.replace("ids = torch", 'raise KeyError("lost")\n        ids = torch')
    path = plugin(code)
    line = 1 + code.splitlines().index('        raise KeyError("lost")')
    where = f"""KeyError("'lost'") in {path.name}, line {line}"""
    done = run("--plugin", path, "--stage", "only=97", "hi")
    assert where in done.err
    assert "Traceback" not in done.err
    debugged = run("--plugin", path, "--stage", "only=97", "--debug", "hi")
    assert f'File "{path}", line {line}, in apply' in debugged.err

    checked = gencli("stages", "check", path)
    assert f"KeyError: 'lost' in {path.name}, line {line}" in checked.out
    assert "Traceback" not in checked.out
    assert f'File "{path}", line {line}, in apply' in gencli("stages", "check", path, "--debug").out

    broken = plugin("import json\n1 / 0\n", "broken.py")
    assert "ZeroDivisionError: division by zero in broken.py, line 2" in run("--plugin", broken, "hi").err
