"""Where a prompt comes from."""


def test_where_a_prompt_ends(run):
    assert "ends with a space" in run("hi ", "--max-tokens", "2").err
    assert "ends with a space" not in run("hi", "--max-tokens", "2").err
    assert run("hi ", "--max-tokens", "2", "--quiet").err == ""

    assert run("--chat", "hi", "--seed", "3").out == run("user: hi\nassistant:", "--seed", "3").out
