"""Rows choose keys of watermarks by name; no row names a file, and no result has a path or a key."""

from itertools import product

from gencli.runtime.models import load_tokenizer
from gencli.watermark.detect import detect
from gencli.watermark.evidence import scorer_of
from gencli.watermark.key_file import read_key_file
from tests.batch.test_named_keys import KEYS, keys, texts


def check_detection(kind, bench, keys):
    files = {name: bench.folder / "keys" / f"{name}=1.key" for name in KEYS}
    for name, file in files.items() if kind == "kgw" else ():  # a small model has few choices to prefer from
        file.write_text(f"{{key: {KEYS[name]}, bias: 4}}")
    rows = [{"prompt": text, "watermark": kind, "watermark_key": name}
            for text, name in product(["Once upon a time", "One winter, a fox", "The"], KEYS)]  # fmt: skip
    bench.write(rows)
    done = bench.call(bench.input, "-o", bench.output, "--seed", "1", "--max-tokens", "150", "--dtype",
                      "float32", "--ignore-eos", "--temperature", "1.5", *keys)  # fmt: skip
    assert done.code == 0, done.err
    tokenizer = load_tokenizer("tiny")
    scorers = {name: scorer_of(read_key_file(kind, str(file)), vocab=2048) for name, file in files.items()}
    for row, text in zip(rows, texts(bench), strict=True):
        ids = tokenizer.encode(text, special=False)
        verdicts = {name: detect(scorer, ids).verdict for name, scorer in scorers.items()}
        assert verdicts == {name: "marked" if name == row["watermark_key"] else "not marked" for name in KEYS}


def test_each_row_is_found_with_its_own_key_and_with_no_other(bench, keys):
    check_detection("kgw", bench, keys)
