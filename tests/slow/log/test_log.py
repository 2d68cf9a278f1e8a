"""What `--log` keeps, what the commands show of it, and what happens where it cannot be kept."""


def test_two_runs_at_once_are_both_kept(logged, gencli, spawn):
    runs = [spawn("run", "-m", "fake", "--max-tokens", "2", "--log", "hi") for _ in range(2)]
    for process in runs:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert b"not kept" not in err
    assert [row["number"] for row in gencli("log", "list", "--format", "json").json] == [2, 1]
