"""What a run may not go on with is named; what does not change its texts may change."""

import shutil

from gencli.batch.journal import differences, folder_digest
from gencli.models.files.local_models import bundled_folder


def test_a_copied_model_is_the_same_model_until_one_of_its_files_changes(tmp_path):
    copy, own = tmp_path / "copy", folder_digest(bundled_folder("tiny-draft"))
    shutil.copytree(bundled_folder("tiny-draft"), copy, copy_function=shutil.copyfile)
    assert folder_digest(copy) == own
    weights = copy / "model.safetensors"
    whole = weights.read_bytes()
    for place in (0.0, 0.3, 0.5, 1.0):
        data = bytearray(whole)
        at = 10_000 + int(place * (len(data) - 20_000))
        data[at : at + 200_000] = bytes(byte ^ 1 for byte in data[at : at + 200_000])
        weights.write_bytes(data)
        assert folder_digest(copy) != own, place
    weights.write_bytes(whole)
    assert folder_digest(copy) == own
    (copy / "chat_template.jinja").write_text("{{ messages }}")
    assert folder_digest(copy) != own


def test_what_changed_is_named_with_both_values():
    before = {"seed": 1, "input": "abc", "gone": True}
    now = {"seed": 2, "input": "abd", "new": [1]}
    assert list(differences(before, now).values()) == [
        "seed was 1 and is 2", "input changed", "gone was True and is None", "new was None and is [1]",
    ]  # fmt: skip
    assert differences(before, before) == {}
    same = {"revision": "a", "weights_sha256": "c"}
    assert differences(same, {**same, "revision": "b"}) == {}
