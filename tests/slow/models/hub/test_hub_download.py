"""Fetching from a hub: what is needed and no more, resumed, checked, and laid out as other tools expect."""

import shutil
from hashlib import sha256

import pytest

from gencli.errors import ModelError
from gencli.models.files.hub_download import plan_fetch
from gencli.models.files.local_models import HubName, find_snapshot, missing_files, repository_folder
from gencli.runtime.model_loading import ModelChoice, load
from tests.models.cases import case
from tests.models.hub.conftest import TOKEN, shards
from tests.models.hub.server import Fault, Repo
from tests.models.hub.test_hub_download import NAME, WEIGHTS, check_waits, pull


def blob_of(hub, path=WEIGHTS, repo="some/one"):
    return repository_folder(HubName(repo)) / "blobs" / sha256(hub.repos[repo].files[path]).hexdigest()


def check_whole(hub, folder, told):
    assert sha256((folder / WEIGHTS).read_bytes()).hexdigest() == blob_of(hub).name
    assert told[-1][0] == told[-1][1]


def test_a_transfer_that_was_cut_goes_on_where_it_ended(hub):
    hub.faults[WEIGHTS] = [Fault(cut=100_000), Fault(cut=200_000)]
    folder, told = pull()
    assert hub.fetched(WEIGHTS) == [None, "bytes=100000-", "bytes=300000-"]
    check_whole(hub, folder, told)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    shutil.rmtree(repository_folder(NAME))
    hub.faults[WEIGHTS] = [Fault(cut=100_000), Fault(no_range=True)]  # the whole file again
    check_whole(hub, *pull())


def test_what_an_earlier_process_left_is_gone_on_with_if_it_is_of_this_file(hub):
    part = blob_of(hub).with_name(blob_of(hub).name + ".incomplete")
    part.parent.mkdir(parents=True)
    part.write_bytes(hub.repos["some/one"].files[WEIGHTS][:123_456])
    plan = plan_fetch(NAME)
    assert plan.todo < plan.size - 123_456 + 1
    check_whole(hub, *pull())
    assert hub.fetched(WEIGHTS) == ["bytes=123456-"]
    assert not part.exists()
    for count in (50_000, 9_000_000):  # wrong bytes, and too many
        shutil.rmtree(repository_folder(NAME))
        part.parent.mkdir(parents=True)
        part.write_bytes(bytes(count))
        check_whole(hub, *pull())


def test_failures_that_pass_are_waited_for(hub):
    for where, status in (("api", 408), ("config.json", 429), (WEIGHTS, 503)):
        check_waits(hub, where, status)


def test_a_hub_that_stays_broken_is_said(hub):
    for where in ("api", WEIGHTS):
        hub.faults = {where: [Fault(status=503) for _ in range(9)]}
        with case(where), pytest.raises(ModelError, match="answered with error 503") as caught:
            pull()
        assert "run the same command again" in caught.value.hint
        assert find_snapshot(NAME) is None


def test_a_server_that_stays_silent_or_is_not_there_is_given_up(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 0.1)
    hub.faults[WEIGHTS] = [Fault(wait=1.0) for _ in range(9)]
    with pytest.raises(ModelError, match=r"connection to 127.0.0.1 failed \(ReadTimeout\)"):
        pull()
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match=r"connection to 127.0.0.1 failed \(ConnectError\)"):
        pull()


def test_a_server_that_is_slow_but_answers_is_waited_for(hub, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_DOWNLOAD_TIMEOUT", 2)
    hub.faults[WEIGHTS] = [Fault(slow=0.3)]
    assert missing_files(pull()[0]) == ()


def test_a_wrong_hash_is_an_error_and_nothing_of_the_file_stays(hub):
    data = bytearray(hub.repos["some/one"].files[WEIGHTS])
    data[-1] ^= 1
    hub.faults[WEIGHTS] = [Fault(body=bytes(data))]
    with pytest.raises(ModelError, match="model.safetensors of some/one does not have the hash"):
        pull()
    assert not list(blob_of(hub).parent.glob(f"{blob_of(hub).name}*"))
    assert missing_files(pull()[0]) == ()
    shutil.rmtree(repository_folder(NAME))
    small = "generation_config.json"
    hub.faults[small] = [Fault(body=bytes(reversed(hub.repos["some/one"].files[small])))]
    with pytest.raises(ModelError, match=f"{small} of some/one does not have the hash"):
        pull()


def test_another_size_than_the_listing_says_is_an_error(hub):
    data = hub.repos["some/one"].files[WEIGHTS]
    for body in (data[:-1000], data + b"\0" * 1000):
        hub.faults[WEIGHTS] = [Fault(body=body) for _ in range(99)]
        with (
            case(len(body)),
            pytest.raises(ModelError, match="failed \\(Truncated\\)|longer than the hub states"),
        ):
            pull()
        assert find_snapshot(NAME) is None


def test_a_refusal_says_what_to_do(hub, monkeypatch):
    for status, code, said, hint in [
        (403, "GatedRepo", "is gated", "Request access at"),
        (403, "", "refuses access", "may say why"),
        (404, "RepoNotFound", "There is no model some/one", "Check the name"),
        (404, "RevisionNotFound", "has no revision main", "lists them"),
        (401, "GatedRepo", "is gated", "hf auth login"),
        (401, "", "There is no model", "token"),
    ]:
        if status == 401:
            monkeypatch.delenv("HF_TOKEN", raising=False)
            monkeypatch.setenv("HF_TOKEN_PATH", "/nowhere")
        hub.repos["some/one"].status, hub.repos["some/one"].error = status, code
        with case(status, code), pytest.raises(ModelError, match=said) as caught:
            pull()
        assert hint in caught.value.hint
        assert TOKEN not in caught.value.message + caught.value.hint
        assert not repository_folder(NAME).exists()


def test_the_token_goes_to_the_hub_and_not_where_it_redirects_to(hub):
    pull()
    sent = {path: headers.get("Authorization") for path, headers in hub.log}
    assert {token for path, token in sent.items() if "/cdn/" not in path} == {f"Bearer {TOKEN}"}
    assert [token for path, token in sent.items() if "/cdn/" in path] == [None] * 2


def test_a_model_that_gencli_cannot_run_is_refused_before_its_weights(hub):
    cases = {
        "pickles": {"config.json": None, "pytorch_model.bin": b"x"},
        "GGUF": {"config.json": None, "model.gguf": b"x"},
        "an adapter": {"adapter_config.json": b"{}", "adapter_model.safetensors": b"x"},
        "own Python code": {
            "config.json": b'{"auto_map": {"AutoModelForCausalLM": "odd.Odd"}}',
            WEIGHTS: b"x",
        },
        "does not continue text": {"config.json": b'{"model_type": "t5"}', WEIGHTS: b"x"},
    }
    config = hub.repos["some/one"].files["config.json"]
    for said, files in cases.items():
        hub.repos["some/one"] = Repo({path: config if data is None else data for path, data in files.items()})
        with pytest.raises(ModelError, match=said):
            pull()
    assert hub.fetched(WEIGHTS) == []


def test_weights_in_parts_are_those_of_the_index(hub):
    hub.repos["some/one"] = Repo(shards())
    folder, _ = pull()
    assert len(list(folder.glob("*.safetensors"))) == 2
    assert load(ModelChoice("some/one")).runner.spec.vocab_size > 0
    index = hub.repos["some/one"].files["model.safetensors.index.json"]
    hub.repos["some/one"].files["model.safetensors.index.json"] = index.replace(
        b"model-00002-of-00002.safetensors", b"../../../x.safetensors"
    )
    with pytest.raises(ModelError, match="lacks weight files that its index names"):
        pull()


def test_code_is_fetched_only_if_it_is_wanted(hub):
    assert not list(pull()[0].glob("*.py"))
    assert [path.name for path in pull(with_code=True)[0].glob("*.py")] == ["modeling_odd.py"]


def test_nothing_is_transferred_twice(hub):
    pull()
    hub.log.clear()
    assert plan_fetch(NAME).is_complete
    pull()
    assert {path for path in hub.paths() if "/api/" not in path} == set()
    hub.repos["some/one"].commit = "f" * 40  # a new commit with the same files
    hub.log.clear()
    assert pull()[0].name == "f" * 40
    assert {path for path in hub.paths() if "/api/" not in path} == set()
