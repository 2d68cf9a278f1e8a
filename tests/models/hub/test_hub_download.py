"""Fetching from a hub: what is needed and no more, resumed, checked, and laid out as other tools expect.

GGUF files of a hub: chosen by quantization or name, with all parts, found again in the cache.
"""

import os
import shutil

import pytest

from gencli.errors import ModelError
from gencli.models.files.checkpoint import identify
from gencli.models.files.hub_download import fetch, plan_fetch
from gencli.models.files.local_models import (
    HubName,
    cached_models,
    choose_gguf,
    find_local,
    find_snapshot,
    missing_files,
    read_hub_name,
    repository_folder,
)
from gencli.runtime.model_loading import ModelChoice, load
from tests.helpers.gguf_files import write_model
from tests.models.cases import case
from tests.models.hub.server import COMMIT, Fault, Repo
from tests.models.tiny_models import build_native

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


PARTS = [f"m-q8_0-0000{number}-of-00002.gguf" for number in (1, 2)]


@pytest.fixture
def files(tmp_path):
    write_model(tmp_path / "model.gguf", build_native("llama"), "Q4_0")
    whole = (tmp_path / "model.gguf").read_bytes()
    names = ("m-Q4_0.gguf", "m-Q4_K_M.gguf", "m-Q4_K_S.gguf", *PARTS, "mmproj-m-Q4_0.gguf")
    return {name: whole + bytes(32 * place) for place, name in enumerate(names)}


def test_names_have_a_quantization():
    assert read_hub_name("org/name:Q4_0") == HubName("org/name", gguf="Q4_0")
    assert read_hub_name("org/name@v1:m.gguf") == HubName("org/name", "v1", "m.gguf")
    assert str(HubName("org/name", "v1", "Q4_0")) == "org/name@v1:Q4_0"
    for text in ("org/name:", "org/name:../x", "org/name:a/b", "org/name:.x"):
        assert read_hub_name(text) is None


def test_a_quantization_is_a_whole_part_of_the_name(files):
    assert choose_gguf(files, "Q4_0") == {"m-Q4_0.gguf": ("m-Q4_0.gguf",)}
    assert choose_gguf(files, "Q8_0") == {PARTS[0]: tuple(PARTS)}
    assert choose_gguf(files, PARTS[1]) == {PARTS[0]: tuple(PARTS)}
    assert choose_gguf(files, "Q4_K") == choose_gguf(files, "4_0") == {}
    assert len(choose_gguf(files, "m")) == 4
    assert choose_gguf(PARTS[:1], "Q8_0") == {}


def test_a_file_is_fetched_runs_and_is_listed(gencli, hub, files):
    hub.repos["some/gguf"] = Repo(files)
    refused = gencli("run", "-m", "some/gguf:Q4_0", "--max-tokens", "2", "hi")
    assert (refused.code, hub.log) == (5, [])
    assert "gencli models pull some/gguf:Q4_0" in refused.err
    pulled = gencli("models", "pull", "some/gguf:q4_0")
    assert pulled.code == 0, pulled.err
    assert pulled.out.endswith("/m-Q4_0.gguf\n")
    assert [len(hub.fetched(name)) for name in files] == [1, 0, 0, 0, 0, 0]
    assert gencli("run", "-m", "some/gguf:Q4_0", "--max-tokens", "2", "hi").code == 0
    assert "some/gguf:m-Q4_0.gguf" in gencli("models", "list").out
    assert gencli("models", "rm", "some/gguf:Q4_0", "--yes").code == 2
    assert gencli("models", "rm", "some/gguf", "--yes").code == 0
    assert list(cached_models()) == []


def test_all_parts_are_fetched(gencli, hub, files):
    hub.repos["some/gguf"] = Repo(files)
    assert gencli("models", "pull", "some/gguf:Q8_0").code == 0
    found = find_local("some/gguf:Q8_0")
    assert found.name == PARTS[0]
    assert found.with_name(PARTS[1]).is_file()


def test_what_chooses_no_single_file_is_refused_with_the_list(hub, files):
    for name, said in [
        (HubName("some/gguf"), "has GGUF files: m-Q4_0.gguf, m-Q4_K_M.gguf"),
        (HubName("some/gguf", gguf="Q5_0"), "has no GGUF file Q5_0. It has m-Q4_0.gguf"),
        (HubName("some/gguf", gguf="m"), "may be any of m-Q4_0.gguf"),
    ]:
        with case(name, said):
            hub.repos["some/gguf"] = Repo(files)
            with pytest.raises(ModelError) as caught:
                plan_fetch(name)
            assert said in caught.value.message
            assert caught.value.hint == "Name one, as in some/gguf:m-Q4_0.gguf."
