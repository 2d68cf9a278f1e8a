"""The commands with models of the hub: what fetches, what refuses to, and what is said."""

import os
import sys

import pytest

from gencli.models.files.local_models import HubName, find_snapshot
from tests.helpers.terminals import begin, until_closed
from tests.models.hub.conftest import TOKEN
from tests.models.hub.server import COMMIT
from tests.models.hub.test_commands import NAME, SHORT, WEIGHTS


def at_a_terminal(*arguments, answer=b"", env=()):
    """A real process whose three streams are a terminal; its exit code and what it shows."""
    env = {**os.environ, "TERM": "xterm", "NO_COLOR": "", "COLUMNS": "100", **dict(env)}
    command = [sys.executable, "-m", "gencli", *arguments]  # the hub's library reads variables at its import
    process, leader = begin(command, ("stdin", "stdout", "stderr"), env=env)
    os.write(leader, answer)
    shown = until_closed(leader)
    return process.wait(timeout=60), shown.decode()


def test_much_is_asked_about_on_a_terminal(hub):
    hub.repos["some/one"].listed[WEIGHTS] = {
        "lfs": {"size": 12 * 10**9, "sha256": "0" * 64, "pointerSize": 130}
    }
    code, seen = at_a_terminal("run", "-m", "some/one", *SHORT, "hi", answer=b"n\r")
    if "GB free" in seen:
        pytest.skip("the disk has no room for 12 GB")
    assert code == 5
    assert "Fetch 12.0 GB? [y/N]" in seen
    assert "some/one is not fetched" in seen


def test_run_fetches_only_if_it_is_told_to(gencli, hub):
    refused = gencli("run", "-m", "some/one", "hi", *SHORT)
    assert (refused.code, refused.out) == (5, "")
    assert "--download" in refused.err
    assert "gencli models pull some/one" in refused.err
    assert hub.log == []
    record = gencli("run", "-m", "some/one", "--download", "hi", *SHORT, "--format", "json").json
    assert (record["model"], record["model_revision"]) == ("some/one", COMMIT)
    assert gencli("run", "-m", f"some/one@{COMMIT}", "hi", *SHORT).code == 0


def test_models_beside_the_model_are_fetched_too(gencli, hub):
    for flag in ("--draft", "--contrast"):
        assert gencli("run", flag, "some/one", "hi", *SHORT).code == 5
        assert gencli("run", flag, "some/one", "--download", "hi", *SHORT).code == 0
        assert gencli("models", "rm", "some/one", "--yes").code == 0, flag


def test_a_snapshot_that_lacks_a_file_is_partial_and_completed(gencli, hub):
    gencli("models", "pull", "some/one")
    (find_snapshot(NAME) / WEIGHTS).resolve().unlink()
    assert "some/one: partial, lacks model.safetensors" in gencli("models", "list").out
    refused = gencli("run", "-m", "some/one", "hi", *SHORT)
    assert (refused.code, "is incomplete on this machine: it lacks model.safetensors" in refused.err) == (
        5,
        True,
    )
    assert gencli("run", "-m", "some/one", "--download", "hi", *SHORT).code == 0


def test_rm_of_a_revision_leaves_what_another_one_shares(gencli, hub):
    hub.repos["some/one"].revisions = ("main", "old")
    gencli("models", "pull", "some/one@old")
    hub.repos["some/one"].commit = "f" * 40
    hub.repos["some/one"].files["generation_config.json"] = b"{}"
    gencli("models", "pull", "some/one")
    result = gencli("models", "rm", "some/one@old", "--yes", "--format", "json")
    assert (result.code, result.json["freed_bytes"] < 5000) == (0, True)
    assert find_snapshot(HubName("some/one", "old")) is None
    assert gencli("run", "-m", "some/one", "hi", *SHORT).code == 0


def test_an_alias_stands_for_a_model_wherever_one_is_named(gencli, hub, tmp_path):
    assert gencli("models", "alias", "small", "some/one").code == 0
    assert gencli("models", "pull", "small").code == 0
    assert gencli("models", "alias").out == "small: some/one\n"
    assert "small: alias of some/one" in gencli("models", "list").out
    assert gencli("models", "show", "small").code == 0
    assert gencli("tokenize", "-m", "small", "hi").code == 0
    for flags in (("-m", "small"), ("--draft", "small"), ("--contrast", "small")):
        assert gencli("run", *flags, "hi", *SHORT).code == 0
    record = gencli("run", "-m", "small", "hi", *SHORT, "--format", "json").json
    assert (record["model"], record["model_revision"]) == ("small", COMMIT)
    assert gencli("models", "alias", "small", "--remove").code == 0
    assert gencli("models", "alias", "--format", "json").json == {}


def test_pull_fetches_shows_the_folder_and_list_knows_it(gencli, hub):
    result = gencli("models", "pull", "some/one")
    folder = find_snapshot(NAME)
    assert (result.code, result.out) == (0, f"{folder}\n")
    assert "some/one: 2.0 MB in" in result.err
    assert "127.0.0.1" in result.err
    assert TOKEN not in result.err
    listed = gencli("models", "list").out
    assert "some/one    hub" in listed
    assert "1 model," in listed
    again = gencli("models", "pull", "some/one")
    assert (again.code, again.out) == (0, result.out)
    assert "is up to date" in again.err
