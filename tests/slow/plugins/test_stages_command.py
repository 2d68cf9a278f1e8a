"""`gencli stages`: list, show, check."""

from pathlib import Path

ROOT = Path(__file__).parents[3]


BROKEN = ROOT / "tests" / "processors" / "testing" / "test_broken_stages.py"


def test_check_names_the_promise_that_is_broken(gencli):
    for stage, check in [
        ("RunsByDefault", "defaults_never_run"),
        ("AssumesSortedRows", "rows_commute"),
        ("TakesTheLargestOfTheBatch", "batch_equals_alone"),
        ("IgnoresDrafts", "drafts_equal_steps"),
        ("CountsItsCalls", "apply_is_pure"),
        ("RevivesMasked", "masked_stays_masked"),
        ("DividesByTheSpread", "leaves_a_choice"),
        ("KeepsOnlyAboveTheMean", "leaves_a_choice"),
        ("AdmitsOnce", "admit_overwrites"),
        ("ReleaseMovesTheLast", "release_frees"),
        ("SharesAfterFork", "fork_is_independent"),
    ]:
        values = ("--stage", "shift=0.5", "--stage", "shift=2", "--stage", "shift=-1")
        done = gencli("stages", "check", f"{BROKEN}:{stage}", *values)
        assert done.code == 4, stage
        failed = [line.split()[1] for line in done.out.splitlines() if line.startswith("failed")]
        assert failed == [check], stage
        assert done.out.count("with shift=") <= 3, stage

    done = gencli("stages", "check", f"{BROKEN}:IgnoresDrafts")
    assert "with shift=0.5: prompt [], output [], drafts [60]" in done.out
