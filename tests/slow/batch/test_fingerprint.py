"""What a run may not go on with is named; what does not change its texts may change."""

import json
import shutil

from gencli.models.files.local_models import bundled_folder


def test_a_resumed_batch_with_other_weights_is_refused_by_name(bench):
    for flag in ["--model", "--contrast", "--draft"]:
        bench = bench.fresh()
        copy = bench.folder / "copy"
        shutil.copytree(bundled_folder("tiny-draft"), copy, copy_function=shutil.copyfile)
        bench.write([{"prompt": "Once"}, {"prompt": "Then"}])
        asked = (bench.input, "-o", bench.output, "--seed", "1", "--max-tokens", "2", "--keep-journal",
                 *(() if flag == "--model" else ("--model", "tiny")), flag, copy,
                 *(("--verify", "rejection") if flag == "--draft" else ()))  # fmt: skip
        assert bench.call(*asked).code == 0, flag
        weights = copy / "model.safetensors"
        data = bytearray(weights.read_bytes())
        data[-1] ^= 1
        weights.write_bytes(data)
        again = bench.call(*asked, "--resume")
        prefix = "" if flag == "--model" else f"{flag} "
        assert (again.code, f"{prefix}weights_sha256 was" in again.err) == (2, True), flag


def test_a_file_of_a_run_may_not_change_though_the_mask_stays(bench):
    schema = {"type": "array", "items": {"type": "integer"}, "uniqueItems": True, "minItems": 5}
    file = bench.folder / "list.json"
    file.write_text(json.dumps(schema))
    bench.write([{"prompt": "one"}])
    run = (bench.input, "-o", bench.output, "--model", "fake", "--max-tokens", "3", "--json-schema", file)
    assert bench.call(*run).code == 7
    file.write_text(json.dumps({**schema, "contains": {"const": 7}}))
    found = bench.call(*run, "--resume", "--retry-errors")
    assert (found.code, found.out) == (2, "")
    assert "belongs to another run: file of --json-schema changed." in found.err
