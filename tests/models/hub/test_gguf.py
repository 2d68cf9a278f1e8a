"""GGUF files of a hub: chosen by quantization or name, with all parts, found again in the cache."""

import pytest

from gencli.errors import ModelError
from gencli.models.files.hub_download import plan_fetch
from gencli.models.files.local_models import HubName, cached_models, choose_gguf, find_local, read_hub_name
from tests.helpers.gguf_files import write_model
from tests.models.cases import case
from tests.models.hub.server import Repo
from tests.models.tiny_models import build_native

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
