"""The log of runs, and runs that are repeated from it."""

from tests.log.test_log import DOCUMENT, RUNS


def test_two_runs_at_once_are_both_kept(logged, gencli, spawn):
    runs = [spawn("run", "-m", "fake", "--max-tokens", "2", "--log", "hi") for _ in range(2)]
    for process in runs:
        _, err = process.communicate(timeout=60)
        assert process.returncode == 0
        assert b"not kept" not in err
    assert [row["number"] for row in gencli("log", "list", "--format", "json").json] == [2, 1]


def test_a_run_is_made_again_with_the_same_bytes(here, logged, gencli, monkeypatch):
    for arguments in RUNS.values():
        with monkeypatch.context() as patch:
            here("s.json", DOCUMENT)
            here("base.yaml", "top_k: 4\n")
            here("mine.yaml", "# Mine\nextends: ./base.yaml\nstages: {min_p: {p: 0.1}}\nstop: ['a b']\n")
            first = logged(*arguments)
            assert first.code == 0, first.err
            here("mine.yaml", "top_k: 1\n")
            defaults = here("home/gencli/defaults.yaml", "temperature: 0\nmax_tokens: 1\n")
            patch.setenv("GENCLI_TOP_K", "1")
            again = gencli("log", "rerun", "last")
            assert (again.code, again.out) == (first.code, first.out), arguments
            assert "not the one" not in again.err, arguments
            defaults.unlink()
