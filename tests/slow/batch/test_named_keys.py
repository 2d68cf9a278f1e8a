"""Rows choose keys of watermarks by name; no row names a file, and no result has a path or a key."""

from itertools import product

from gencli.runtime.model_loading import load_tokenizer
from gencli.watermark_detector import detect, scorer_of
from gencli.watermark_keys import read_key_file
from tests.batch.test_named_keys import KEYS, base, keys, texts


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


MARKED = [
    {"prompt": "Once upon a time", "watermark_key": "acme"},
    {"prompt": "Once upon a time", "watermark_key": "birch-2"},
    {"prompt": "One winter, a fox"},
    {"prompt": "One winter, a fox", "watermark": "none"},
    {"prompt": "The", "watermark_key": "acme", "n": 2},
    {"prompt": "The", "watermark": "synthid", "watermark_key": "birch-2"},
]


def test_a_row_has_the_text_of_a_batch_with_its_key_alone(bench, keys, base, tmp_path):
    bench.write(MARKED)
    assert bench.run(*base, *keys, "--max-batch", "3").code == 0
    mixed, files = texts(bench), {name: tmp_path / "keys" / f"{name}=1.key" for name in KEYS}
    assert mixed[0] != mixed[1]
    bench.write([{key: row[key] for key in row if key != "watermark_key"} for row in MARKED])
    for index, file in enumerate((files["acme"], files["birch-2"], base[-1], base[-1], files["acme"])):
        alone = ("--watermark", "kgw", "--watermark-key", file, "--shard", f"{index}/6", "--overwrite")
        assert bench.run(*alone).code == 0
        assert texts(bench) == [mixed[index]]


def test_drafts_and_interruptions_change_no_text(bench, keys, base):
    bench.write(MARKED)
    assert bench.run(*base, *keys, "--keep-journal", "--no-timings").code == 0
    wanted, lines = bench.output.read_bytes(), bench.journal.read_bytes().splitlines(keepends=True)
    bench.journal.write_bytes(b"".join(lines[:3]))
    bench.output.unlink()
    assert bench.run(*base, *keys, "--resume", "--no-timings").code == 0
    assert bench.output.read_bytes() == wanted
    before = texts(bench)
    assert bench.run(*base, *keys, "--draft", "ngram", "--overwrite").code == 0
    assert texts(bench) == before


def test_a_batch_with_other_keys_does_not_go_on(bench, keys, base, tmp_path):
    for change in ("content", "fewer", "name"):
        bench = bench.fresh()
        bench.write(MARKED[2:4])
        assert bench.run(*base, *keys, "--keep-journal").code == 0, change
        if change == "content":
            (tmp_path / "keys" / "acme=1.key").write_text("43")
        elif change == "name":
            keys[1] = keys[1].replace("acme=", "maple=", 1)
        flags = keys[:2] if change == "fewer" else keys
        assert "--named-key was {'acme': '#" in bench.refused(*base, *flags, "--resume"), change


def test_no_result_has_a_key_or_its_file(bench, keys, base):
    wrong = [
        {"prompt": "a", "watermark_key": "oak"},
        {"prompt": "a", "watermark_key": KEYS["acme"]},
        {"prompt": "a", "watermark_key": ["acme"]},
        {"prompt": "a", "watermark_key": "acme=base.key"},
        {"prompt": "a", "watermark": "none", "watermark_key": "acme"},
        {"prompt": "a", "watermark": "gumbel", "watermark_key": "acme", "n": 2},
    ]
    bench.write([*MARKED, *wrong])
    done = bench.run(
        *base, *keys, "--summary", bench.folder / "sum.json", "--trace", bench.folder / "t.jsonl"
    )
    assert done.code == 7
    said = [str(result["error"]) for result in bench.results[len(MARKED) :]]
    unknown = "watermark_key names no key of this batch, whose keys are acme, birch-2."
    assert all(unknown in text for text in said[:4])
    assert "there is no watermark" in said[4]
    assert "the texts would begin alike" in said[5]
    files = ("out.jsonl", "out.jsonl.journal", "sum.json", "t.jsonl")
    told = done.err + "".join((bench.folder / name).read_text() for name in files)
    assert not [text for text in (*map(str, KEYS.values()), "1.key", "base.key") if text in told]
    assert told.count('"key": "#') > len(MARKED), "fingerprints stand for the keys"
