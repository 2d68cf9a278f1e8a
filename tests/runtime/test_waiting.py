"""Threads spin on a quiet machine and sleep on a shared one; the environment has the last word."""

import os
from pathlib import Path

import pytest

from gencli.runtime import waiting
from gencli.runtime.waiting import is_shared, set_wait


def pressure(folder: Path, share: float) -> Path:
    path = folder / "cpu"
    path.write_text(f"some avg10={share:.2f} avg60=9.00 avg300=9.00 total=5\nfull avg10=0.00 total=0\n")
    return path


@pytest.mark.parametrize(("share", "expected"), [(0.0, False), (9.5, False), (51.02, True)])
def test_linux_says_whether_tasks_wait_for_a_core(tmp_path: Path, share: float, expected: bool) -> None:
    assert is_shared(pressure(tmp_path, share)) == expected


@pytest.mark.parametrize(("load", "expected"), [(0.1, False), (10**6, True)])
@pytest.mark.parametrize("text", [None, "", "some avg10=x"])
def test_elsewhere_the_load_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, load: float, expected: bool
) -> None:
    path = tmp_path / "cpu"
    if text is not None:
        path.write_text(text)
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    assert is_shared(path) == expected


@pytest.mark.parametrize(
    ("wait", "shared", "environ", "policy"),
    [
        ("auto", False, {}, None),
        ("auto", True, {}, "PASSIVE"),
        ("spin", True, {}, None),
        ("sleep", False, {}, "PASSIVE"),
        ("sleep", False, {"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"),
    ],
)
def test_the_choice_is_told_to_the_library(
    monkeypatch: pytest.MonkeyPatch,
    wait: waiting.Wait,
    shared: bool,
    environ: dict[str, str],
    policy: str | None,
) -> None:
    monkeypatch.setattr(waiting, "is_shared", lambda: shared)
    set_wait(wait, environ)
    assert environ.get("OMP_WAIT_POLICY") == policy
