"""Fetching from a hub: what is needed and no more, resumed, checked, and laid out as other tools expect."""

import os
import shutil

import pytest

from gencli.errors import ModelError
from gencli.models.files.checkpoint import identify
from gencli.models.files.hub_download import fetch, plan_fetch
from gencli.models.files.local_models import HubName, find_snapshot, missing_files, repository_folder
from gencli.runtime.model_loading import ModelChoice, load
from tests.models.cases import case
from tests.models.hub.server import COMMIT, Fault

NAME = HubName("some/one")


WEIGHTS = "model.safetensors"


def pull(name=NAME, **options):
    told = []
    folder = fetch(plan_fetch(name, **options), lambda done, total: told.append((done, total)))
    return folder, told


def test_what_is_needed_is_fetched_and_runs(hub):
    folder, told = pull()
    assert {path.name for path in folder.iterdir()} == {
        *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", WEIGHTS),
        *(name for name in hub.repos["some/one"].files if name.endswith(".jinja")),
    }
    assert told[-1][0] == told[-1][1] == sum((folder / name).stat().st_size for name in os.listdir(folder))
    assert find_snapshot(NAME) == folder
    assert missing_files(folder) == ()
    assert load(ModelChoice("some/one")).tokenizer.vocab_size > 0
    assert identify(folder).revision == COMMIT


def test_huggingface_hub_finds_it_too(hub):
    from huggingface_hub import scan_cache_dir, snapshot_download

    (folder, _), cache = pull(), repository_folder(NAME).parent
    assert snapshot_download("some/one", cache_dir=cache, local_files_only=True) == str(folder)
    (repo,) = scan_cache_dir(cache).repos
    assert repo.repo_id == "some/one"


def test_a_revision_has_a_folder_and_a_name_of_its_own(hub):
    hub.repos["some/one"].revisions = ("main", "refs/pr/1")
    name = HubName("some/one", "refs/pr/1")
    folder, _ = pull(name)
    assert find_snapshot(name) == find_snapshot(HubName("some/one", COMMIT)) == folder
    assert find_snapshot(NAME) is None


def check_waits(hub, where, status):
    """A failure that passes is waited for."""
    hub.faults[where] = [Fault(status=status), Fault(status=status, headers={"Retry-After": "0"})]
    assert missing_files(pull()[0]) == (), (where, status)
    shutil.rmtree(repository_folder(NAME))


def test_a_long_wait_that_the_hub_asks_for_is_an_error_at_once(hub):
    hub.faults["api"] = [Fault(status=429, headers={"Retry-After": "3600"}) for _ in range(9)]
    with pytest.raises(ModelError, match="too many requests"):
        pull()
    assert len(hub.log) == 1


def test_an_answer_that_no_hub_gives_is_said(hub):
    for body in (b"{", b"[]", b"<html>", b"{}", b'{"sha": "../../x", "siblings": []}'):
        hub.faults["api"] = [Fault(body=body, status=200)]
        with case(body), pytest.raises(ModelError, match="is malformed"):
            pull()
        assert not repository_folder(NAME).exists(), body


def test_file_names_of_the_server_do_not_leave_the_folder(hub, tmp_path):
    strange = ["../../../escape.json", "/tmp/escape.json", "..\\escape.json", "a/../config.json"]
    strange += ["C:escape.json", ".json", "tokenizer\x1b[31m.json", "sub/tokenizer.json"]
    hub.repos["some/one"].files |= dict.fromkeys(strange, b"{}")
    folder, _ = pull()
    assert set(os.listdir(folder)) <= set(hub.repos["some/one"].files) - {*strange}
    assert not list(tmp_path.rglob("*escape*"))


def test_hashes_of_the_server_are_hashes(hub):
    for blob in ("../../../escape", "x", None, "A" * 64):
        hub.repos["some/one"].listed["config.json"] = {"blobId": blob}
        with case(blob), pytest.raises(ModelError, match="is malformed"):
            pull()


def test_a_full_disk_and_a_cache_that_cannot_be_written_are_said(hub, monkeypatch, tmp_path):
    with monkeypatch.context() as patch:
        patch.setattr("gencli.models.files.hub_download._SPARE", 10**18)
        with pytest.raises(ModelError, match="GB free") as caught:
            plan_fetch(NAME)
    assert "models rm" in caught.value.hint
    assert hub.fetched(WEIGHTS) == []
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "file"))
    with pytest.raises(ModelError, match="cache cannot be written"):
        pull()
