"""The plugin that docs/plugins.md shows is one."""

from tests.plugins.test_docs import CODE


def test_a_stage_stands_twice_under_a_second_name(gencli, run, plugin):
    path = plugin(CODE[1])
    assert gencli("stages", "check", path).code == 0
    values = ("-t", 3, "--top-p", 0.95, "--stage", "second_top_p=0.4")
    order = ("--chain", "top_p,temperature,second_top_p")
    rows = run("--plugin", path, *values, *order, "--show-chain", "--format", "json").json
    assert [row["stage"] for row in rows[2:-1]] == ["top_p", "temperature", "second_top_p"]
    texts = {
        run("--plugin", path, *values[:length], *order, "--seed", 1, "--max-tokens", 40, "hi").out
        for length in (2, 4, 6)
    }
    assert len(texts) == 3
