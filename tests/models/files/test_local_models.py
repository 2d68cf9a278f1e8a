"""The identity of a model: a hash that sha256sum prints too, found without reading what was hashed before.

Headers of safetensors files are read without PyTorch; one that lies is refused.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from hashlib import sha256
from pathlib import Path

import pytest

from gencli.errors import ModelError
from gencli.models.files.checkpoint import ModelIdentity, identify, identify_model
from gencli.models.files.local_models import bundled_folder
from gencli.models.files.model_files import read_table
from tests.models.cases import case
from tests.models.files.test_model_files import F32, write
from tests.models.tiny_models import build

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def tiny(tmp_path):
    """A copy of the bundled model whose files are old enough for their hashes to be kept."""
    folder = shutil.copytree(bundled_folder("tiny-draft"), tmp_path / "tiny", copy_function=shutil.copyfile)
    for path in folder.iterdir():
        os.utime(path, (1, 1))
    return folder


@pytest.fixture
def reads():
    """Calls `identify` and counts the bytes that were hashed."""

    def count(folder):
        seen = [0]
        return identify(folder, lambda done, total: seen.append(done)), max(seen)

    return count


def snapshot(cache, stored):
    """A snapshot in a hub cache, whose weights are stored under the name that `stored` gives their hash."""
    weights = (bundled_folder("tiny-draft") / "model.safetensors").read_bytes()
    place = cache / "models--some--one"
    (place / "blobs").mkdir(parents=True)
    folder = place / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    name = stored(sha256(weights).hexdigest())
    (place / "blobs" / name).write_bytes(weights)
    (folder / "model.safetensors").symlink_to(f"../../blobs/{name}")
    (folder / "config.json").write_text("{}")
    return folder, weights


def test_one_file_has_the_hash_that_sha256sum_prints(tiny):
    digest = sha256((tiny / "model.safetensors").read_bytes()).hexdigest()
    assert identify(tiny) == ModelIdentity("tiny", None, digest)


def test_several_files_have_the_hash_of_what_sha256sum_prints_for_them(tmp_path):
    build("llama").save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    printed = subprocess.check_output("sha256sum *.safetensors", shell=True, cwd=tmp_path)
    assert identify(tmp_path).sha256 == sha256(printed).hexdigest()


def test_a_fresh_file_is_hashed_again_and_an_unchanged_old_one_is_not(tiny, reads, monkeypatch):
    size = (tiny / "model.safetensors").stat().st_size
    assert reads(tiny)[1] == reads(tiny)[1] == size
    monkeypatch.setattr("gencli.models.files.checkpoint._FRESH", 0)
    assert (reads(tiny)[1], reads(tiny)[1]) == (size, 0)


@pytest.mark.parametrize("change", ["bytes", "times", "file"])
def test_a_changed_file_is_hashed_again(tiny, reads, monkeypatch, change):
    monkeypatch.setattr("gencli.models.files.checkpoint._FRESH", 0)
    weights = tiny / "model.safetensors"
    before, size = reads(tiny)
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    if change == "file":
        weights.unlink()
    weights.write_bytes(data)
    if change == "times":
        os.utime(weights, (1, 1))
    after, again = reads(tiny)
    assert again == size
    assert before.sha256 != after.sha256


def test_a_snapshot_of_the_hub_is_read_only_if_its_blob_has_another_name(tmp_path, reads):
    folder, weights = snapshot(tmp_path / "a", lambda digest: digest)
    identity = ModelIdentity("some/one", COMMIT, sha256(weights).hexdigest())
    assert reads(folder) == (identity, 0)
    folder, _ = snapshot(tmp_path / "b", lambda digest: digest[:40])
    assert reads(folder) == (identity, len(weights))


def test_links_of_blobs_and_out_of_the_cache_are_followed(tmp_path, reads):
    folder, weights = snapshot(tmp_path / "a", lambda digest: digest)
    blob = folder / os.readlink(folder / "model.safetensors")
    shared = tmp_path / "a" / "blobs" / "ab" / ("ab" * 32)  # no name of its own
    elsewhere = tmp_path / "elsewhere" / "blobs" / ("0" * 64)
    for path in (shared, elsewhere):
        path.parent.mkdir(parents=True)
    blob.rename(shared)
    blob.symlink_to(shared)
    assert reads(folder)[0].sha256 == sha256(weights).hexdigest()
    elsewhere.write_bytes(weights)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors").symlink_to(elsewhere)
    assert reads(folder)[0].sha256 == sha256(weights).hexdigest()


def test_damaged_and_unwritable_caches_of_hashes_do_no_harm(tiny, reads, tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    found = identify(tiny)
    for text in ("{", "[]", '{"x": 1}', f'{{"{tiny}/model.safetensors": [[1], 2]}}'):
        (cache / "gencli").mkdir(parents=True, exist_ok=True)
        (cache / "gencli" / "weights.json").write_text(text)
        assert identify(tiny) == found
    (cache / "gencli" / "weights.json").unlink()
    os.mkfifo(cache / "gencli" / "weights.json")  # neither read nor written
    assert identify(tiny) == found
    monkeypatch.setenv("XDG_CACHE_HOME", str(tiny / "config.json"))
    assert identify(tiny) == found


def test_missing_weights_are_an_error_and_the_fake_model_has_none(tiny):
    (tiny / "model.safetensors").unlink()
    with pytest.raises(ModelError, match="no weights"):
        identify(tiny)
    assert identify_model("fake") is None
    assert identify_model("some/where") is None


def test_a_tensor_is_where_the_header_says(tmp_path: Path) -> None:
    second = {"dtype": "F4", "shape": [2, 3], "data_offsets": [24, 27]}  # a format that is not known
    path = write(tmp_path / "x", {"second": second, "first": F32}, 27)
    first, last = read_table([path]).values()
    assert (first.name, first.format, first.shape, first.nbytes) == ("first", "F32", (2, 3), 24)
    assert (last.name, last.count, last.nbytes, last.start) == ("second", 6, 3, first.start + 24)


def test_a_header_that_lies_is_refused(tmp_path: Path) -> None:
    for change, reason in [
        ({"data_offsets": [0, 20]}, "its shape needs 24"),
        ({"data_offsets": [-8, 16]}, "has no offsets"),
        ({"data_offsets": [24, 0]}, "has no offsets"),
        ({"data_offsets": [0.0, 24.0]}, "has no offsets"),
        ({"data_offsets": None}, "has no offsets"),
        ({"data_offsets": [32, 56]}, "the end of the file"),
        ({"data_offsets": [12, 36]}, "overlaps"),
        ({"shape": [2**62, 2**62]}, "its shape needs"),
    ]:
        with case(change, reason):
            path = write(
                tmp_path / "x", {"first": {**F32}, "second": {**F32, "data_offsets": [24, 48], **change}}
            )
            with pytest.raises(ModelError, match=f"x is damaged: second .*{reason}"):
                read_table([path])
