"""`gencli stages`: list, show, check."""

from processors.catalog import BUILTIN
from processors.params import describe
from processors.testing import CHECKS
from tests.plugins.conftest import HEAD, ONLY, PARAMS, STAGE


def test_list_has_phase_name_sentence_and_source_in_the_order_of_a_run(gencli, plugin):
    path = plugin(ONLY)
    done = gencli("stages", "list", "--plugin", path)
    rows = {line.split()[1]: line for line in done.out.splitlines()}
    assert done.code == 0
    assert rows["top_k"].split()[0] == "truncate"
    assert "Keep the k most likely tokens." in rows["top_k"]
    assert rows["top_k"].endswith("built-in")
    assert rows["only"].startswith("constrain")
    assert "Allow one id." in rows["only"]
    assert rows["only"].endswith(str(path))

    names = [line.split()[1] for line in gencli("stages", "list").out.splitlines()[1:]]
    builtin = [spec.name for spec in BUILTIN]
    assert [name for name in names if name in builtin] == builtin

    done = gencli("stages", "list", "--plugin", plugin("1 / 0"))
    assert done.code == 0
    assert "ZeroDivisionError" in done.out.splitlines()[-1]


def test_show_has_all_there_is_to_know(gencli, plugin):
    for spec in BUILTIN:
        done = gencli("stages", "show", spec.name)
        assert done.code == 0, spec
        for word in ("Formula", "Reference", "Example", "Elsewhere", *describe(spec.params)):
            assert word in done.out, spec

    done = gencli("stages", "show", "only", "--plugin", plugin(ONLY))
    assert "The one id that may be chosen" in done.out
    assert ">= -1" in done.out
    assert "--stage only=1" in done.out

    done = gencli("stages", "show", "topk")
    assert done.code == 2
    assert "Did you mean 'top_k'?" in done.err


def test_check_of_a_sound_plugin_passes(gencli, plugin):
    done = gencli("stages", "check", plugin(ONLY), "--stage", "only=5")
    assert (done.code, done.err) == (0, "")
    assert "12 passed, 0 failed" in done.out
    assert all(check.__name__ in done.out for check in CHECKS)

    assert gencli("stages", "check", "top_p").code == 0

    done = gencli("stages", "check", plugin(ONLY.replace("(self, logits, rows)", "(self)")))
    assert done.code == 4
    assert "Expected: apply(self, logits, rows)" in done.err

    assert gencli("stages", "check", "nothing").code == 2


PICKY = """
    def __post_init__(self):
        Params.__post_init__(self)
        if self.id not in (-1, 77):
            from processors.errors import ParamError
            raise ParamError("id has to be 77.")
"""


def test_values_to_try_are_asked_for_where_none_can_be_guessed(gencli, plugin):
    path = plugin(HEAD + PARAMS + PICKY + STAGE)
    asked = gencli("stages", "check", path)
    assert asked.code == 4
    assert "--stage only:key=value" in asked.err
    assert gencli("stages", "check", path, "--stage", "only=77").code == 0
