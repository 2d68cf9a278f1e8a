"""`gencli batch` on models, with structured output, chats and drafts."""

import csv
import io
import json

from gencli.models.files.local_models import bundled_folder
from gencli.models.files.model_card import read_card
from tests.batch.conftest import FAKE
from tests.batch.test_command import (
    DRAFTS,
    FLAGS,
    REPEATING_ROWS,
    ROWS,
    STRUCTURED_ROWS,
    call,
    cut,
    in_memory,
    tools,
)


def test_company_changes_no_text_of_a_model(bench):
    bench.write([{"prompt": "Once upon a time " * (1 + n % 5), "max_tokens": 4 + n % 9} for n in range(24)])
    tiny = [bench.input, "--model", "tiny", "--dtype", "float32", "--seed", "1", "--no-timings"]
    alone, together = (bench.call(*tiny, "--max-batch", size) for size in (1, 8))
    assert alone.out == together.out


def test_company_changes_no_byte_of_a_choice_among_texts(bench):
    choices = ({"best_of": 3}, {"beams": 3}, {"best_of": 2, "n": 2})
    bench.write([{"prompt": f"Dog {n} ran", "max_tokens": 6 + n, **choices[n % 3]} for n in range(9)])
    tiny = [bench.input, "--model", "tiny", "--dtype", "float32", "--seed", "1", "--no-timings"]
    few, many = (bench.call(*tiny, "--max-batch", size) for size in (3, 8))
    assert (few.code, few.out) == (0, many.out)


def test_a_resumed_run_has_the_seed_that_it_began_with(bench):
    bench.write(ROWS)
    bare = [bench.input, "-o", bench.output, "--model", "fake", "--no-timings"]
    bench.call(*bare, "--keep-journal")
    whole = bench.output.read_bytes()
    bench.output.unlink()
    lines = bench.journal.read_bytes().splitlines(keepends=True)
    bench.journal.write_bytes(b"".join(lines[:5]))
    assert bench.call(*bare, "--resume").code == 0
    assert bench.output.read_bytes() == whole


CHANGES = {
    "seed": (["--seed", "6"], "seed was 5 and is 6"),
    "chain": (["--top-p", "0.5"], "chain was"),
    "condition": (["--stage", 'top_k:k=3,when={"from":5}'], "chain was"),
    "limit of tokens": (["--max-tokens", "11"], "--max-tokens was 12 and is 11"),
    "stop": (["--stop", "a"], "--stop was [] and is ['a']"),
    "template": (["--template", "{{ prompt }}!"], "--template was None and is '{{ prompt }}!'"),
    "selection": (["--limit", "11"], "--limit was None and is 11"),
    "model": (["--model", "tiny"], "model was 'fake' and is 'tiny'"),
    "input kept": (["--keep-input"], "--keep-input was False and is True"),
}


def test_a_run_does_not_go_on_with_other_settings_or_another_input(bench):
    bench.write(ROWS)
    cut(bench, 4)
    before = bench.journal.read_bytes()
    for name, (flags, said) in CHANGES.items():
        assert said in bench.refused("--resume", *flags), name
    assert "input changed" in bench.refused("--resume", rows=[*ROWS[:3], {"prompt": "Another"}, *ROWS[4:]])
    bench.input.unlink()
    assert "There is no file" in bench.refused("--resume")
    assert bench.journal.read_bytes() == before


def test_a_run_may_go_on_with_what_changes_no_text(bench):
    for flags in [["--max-batch", "2"], ["--order", "completion"], ["--format", "csv"]]:
        bench = bench.fresh()
        bench.write(ROWS)
        cut(bench, 4)
        assert bench.run("--resume", *flags).code == 0, flags


def kv_values(name):
    return read_card(bundled_folder(name)).kv_values


SMALL = kv_values("tiny-draft") / kv_values("tiny")  # of a lane


def test_a_dry_run_counts_models_beside_and_their_lanes(bench):
    cases = [
        (["--draft", "ngram"], "weights", 1),
        (["--draft", "tiny-draft"], "weights + {draft} weights of tiny-draft", 1 + SMALL),
        (["--draft", "early-exit"], "weights", 1.5),
        (["--draft", "early-exit:2"], "weights", 1 + 2 / 6),
        (["--guidance", "1.5"], "weights", 2),
        (["--contrast", "tiny-draft"], "weights + {draft} weights of tiny-draft", 1 + SMALL),
        (["--contrast", "tiny-draft", "--contrast-beta", "0", "--contrast-alpha", "0"],
         "weights + {draft} weights of tiny-draft", 1),
    ]  # fmt: skip
    bench.write(ROWS)
    for flags, weights, lanes in cases:
        done = bench.call(bench.input, "--dry-run", "--model", "tiny", *flags)
        assert done.code == 0, flags
        expected = f"{in_memory('tiny')} {weights.format(draft=in_memory('tiny-draft'))}"
        assert f"{expected} + {45 * lanes:.1f} MiB keys and values" in done.out, flags


def test_memory_decides_how_many_run(bench):
    bench.write(ROWS[:2])
    done = bench.call(bench.input, "--model", "tiny", "--kv-memory", "4M", "--max-tokens", "100")
    assert "Notice: 2 samples run side by side" in done.err
    done = bench.call(bench.input, "--model", "tiny", "--kv-memory", "10K", "--max-tokens", "100")
    assert (done.code, "there is room for 10,240" in done.err) == (5, True)
    assert bench.call(bench.input, *FAKE, "--max-batch", "auto").code == 0


HI = {"messages": [{"role": "user", "content": "hi"}]}


def test_tools_that_some_row_tells_of_are_enforced(bench, tools):
    cases = [
        ({"prompt": "hi"}, ["--chat"]), (HI, []), ({"prompt": "hi", "chat": True}, []),
        ({"prompt": "Do beep."}, []),
    ]  # fmt: skip
    for row, flags in cases:
        bench.write([{"prompt": "yo"}, row])
        done = bench.call(bench.input, "--model", "fake", "--max-tokens", "90", "--seed", "1", *tools, *flags)
        assert done.code in (0, 7), done.err
        assert '"beep"' in done.out, row


def test_a_document_may_be_written_in_one_line_or_in_part(bench):
    cases = [
        ("csv", {"parsed": True}, '{"age":7}'), ("jsonl", {"parsed": True}, '{"age":7}'),
        ("openai", {"parsed": True}, '{"age":7}'), ("csv", {"select": "/age"}, "7"),
    ]  # fmt: skip
    schema = {"type": "object", "properties": {"age": {"const": 7}}, "required": ["age"]}
    for form, option, text in cases:
        bench.write([{"prompt": "Data", "json_schema": schema, "seed": seed, **option} for seed in (1, 2)])
        done = bench.call(bench.input, *FLAGS, "--format", form, "-q")
        assert done.code == 0, (form, option, text)
        if form == "csv":
            found = [row["text"] for row in csv.DictReader(io.StringIO(done.out))]
        else:
            lines = [json.loads(line) for line in done.out.splitlines()]
            is_openai = form == "openai"
            found = [
                line["response"]["body"]["choices"][0]["message"]["content"] if is_openai else line["text"]
                for line in lines
            ]
        assert found == [text, text], (form, option, text)


def test_what_is_not_valid_is_drawn_again_by_its_row(bench):
    row = {"prompt": "Once", "regex": "[a-z ]{2,200}", "max_tokens": 6}
    bench.write([{**row, "seed": n} for n in range(8)] + [{**row, "seed": n, "retries": 3} for n in range(8)])
    assert call(bench).code in (0, 7)
    once, again = bench.results[:8], bench.results[8:]
    assert {one["attempts"] for one in once} == {1}
    assert all(b["attempts"] > 1 for a, b in zip(once, again, strict=True) if a["error"])
    assert all(a["text"] == b["text"] for a, b in zip(once, again, strict=True) if not a["error"])


def test_a_resumed_run_gives_the_same_bytes(bench):
    bench.write(STRUCTURED_ROWS * 3)
    call(bench, "--keep-journal")
    whole = bench.output.read_bytes()
    lines = bench.journal.read_bytes().splitlines(keepends=True)
    for size in [1, 8]:
        bench.journal.write_bytes(b"".join(lines[:6]))
        bench.output.unlink()
        assert call(bench, "--resume", "--max-batch", size).code == 0, size
        assert bench.output.read_bytes() == whole, size


def test_each_row_has_its_own_structure(bench):
    bench.write([*STRUCTURED_ROWS, *STRUCTURED_ROWS])
    assert call(bench).code == 0
    free, data, pick, match, both = bench.results[:5]
    assert (free["valid"], free["grammar"]) == (None, None)
    assert isinstance(data["parsed"]["age"], int)
    assert pick["text"] in ("red", "blue")
    assert len(match["text"]) == 3
    assert match["text"].isdecimal()
    assert set(both["texts"]) <= {"up", "down"}
    assert data["grammar"]["backend"] in ("xgrammar", "llguidance")
    assert "compile_seconds" not in data["grammar"]


def test_a_document_that_is_cut_is_an_error_of_its_row(bench):
    bench.write(
        [
            STRUCTURED_ROWS[0],
            {**STRUCTURED_ROWS[3], "regex": "[0-9]{30}", "max_tokens": 2},
            STRUCTURED_ROWS[2],
        ]
    )
    assert call(bench).code == 7
    assert [one["error"] and one["error"]["type"] for one in bench.results] == [None, "InvalidOutput", None]
    assert bench.results[1]["text"] is None


SCHEMA = {
    "type": "object",
    "properties": {"age": {"type": "integer", "maximum": 99, "minimum": 0}},
    "required": ["age"],
}


def test_a_schema_of_the_run_that_changed_in_its_file_is_noticed(bench):
    schema = bench.folder / "schema.json"
    schema.write_text(json.dumps(SCHEMA))
    bench.write([STRUCTURED_ROWS[0]] * 3)
    assert call(bench, "--json-schema", schema, "--keep-journal").code == 0
    bench.output.unlink()
    schema.write_text(json.dumps({**SCHEMA, "required": []}))
    done = call(bench, "--json-schema", schema, "--resume")
    assert (done.code, "chain changed" in done.err) == (2, True)


def test_where_drafts_decide_a_run_goes_on_with_the_same(bench):
    bench.write([{**row, "verify": "rejection"} for row in REPEATING_ROWS])
    whole = cut(bench, 5, *DRAFTS)
    said = bench.refused("--resume", "--no-timings", "--draft", "suffix", "--draft-tokens", "5")
    assert "--draft-tokens was 3 and is 5" in said
    assert bench.run("--resume", "--no-timings", *DRAFTS, "--max-batch", "2").code == 0
    assert bench.output.read_bytes() == whole
