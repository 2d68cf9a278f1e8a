"""gencli explain: traces, prompts, kept logits, files of logits, lessons."""

import json
import os
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import save_file


@pytest.fixture
def trace(gencli, tmp_path):
    """The trace of a run, and what the run printed."""
    file = tmp_path / "trace.jsonl"
    words = ("run", "-m", "fake", "--seed", "3", "--max-tokens", "20", "--temperature", "2", "--top-k", "4")
    plain = gencli(*words, "the cat")
    traced = gencli(*words, "the cat", "--trace", file)
    assert (traced.code, traced.out) == (0, plain.out)
    return file


def test_views_of_a_text_a_token_and_a_stage(gencli, trace):
    page = gencli("explain", trace).out
    assert page.startswith("20 tokens   ")
    assert [line.split()[0] for line in page.splitlines() if line[:5] in ("tempe", "top_k")] == [
        "temperature",
        "top_k",
    ]
    assert "most surprising: " in page

    lines = gencli("explain", trace, "--at", "3").out.splitlines()
    assert lines[0].startswith("token 3 of 20   ")
    assert [line.split()[0] for line in lines[3:7]] == ["raw", "temperature", "top_k", "draw"]
    assert lines[7].startswith("decided by ")

    records = [
        json.loads(line)
        for line in gencli("explain", trace, "--decided-by", "top_k", "--format", "jsonl").out.splitlines()
    ]
    assert records
    assert all("top_k" in record["decided_by"] for record in records)
    assert gencli("explain", trace, "--decided-by", "top_k").out.count("token ") >= len(records)


def test_a_trace_is_refused_beside_what_chooses_no_token(gencli, tmp_path):
    words = ("run", "-m", "fake", "--trace", tmp_path / "t", "hi")
    for others in (("--beams", "2"), ("--finish-open", "--json")):
        gencli(*words, *others).refused("--trace", others[0])
    same = tmp_path / "same"
    same.write_text("hi")
    run = ("run", "-m", "fake", "--max-tokens", "2")
    gencli(*run, "--trace", same, "-o", same, "hi").refused("--trace and --output are both")
    gencli(*run, "--trace", same, "--file", same).refused("the prompt would be lost")
    gencli(*run, "--output", same, "--file", same).refused("the prompt would be lost")
    assert same.read_text() == "hi"
    assert gencli(*run, "--trace", os.devnull, "-o", os.devnull, "hi").code == 0
    assert "--trace-top is given, but no trace" in gencli("run", "-m", "fake", "--trace-top", "2", "hi").err


def test_lists_have_their_length_and_several_texts_names(gencli, tmp_path):
    file = tmp_path / "t.jsonl"
    assert (
        gencli("run", "-m", "fake", "--max-tokens", "2", "--trace", file, "--trace-top", "2", "hi").code == 0
    )
    tokens = [
        record for record in map(json.loads, file.read_text().splitlines()) if record["kind"] == "token"
    ]
    assert all(len(record["raw"]["top"]) == 2 for record in tokens)

    file = tmp_path / "t.jsonl"
    gencli("run", "-m", "fake", "-n", "2", "--max-tokens", "5", "--trace", file, "a")
    assert "== 1.1\n" in gencli("explain", file).out
    assert "== 1" not in gencli("explain", file, "--sample", "2").out


def test_another_file_is_refused(gencli, tmp_path):
    (tmp_path / "x").write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in gencli("explain", tmp_path / "x").err
    assert "cannot be read" in gencli("explain", tmp_path / "nothing").err

    file = tmp_path / "long"
    with file.open("wb") as made:
        made.truncate(40_000_000)  # one line of zeros
    gencli("explain", file).refused("more than 16,777,216 bytes", code=6)


def test_control_characters_of_a_token_do_nothing_on_a_terminal(gencli, trace):
    text = trace.read_text().replace('"text": "', '"text": "\\u001b[2J\\u202e')
    trace.write_text(text)
    for words in ((), ("--at", "2")):
        shown = gencli("explain", trace, *words).out
        assert "\x1b" not in shown
        assert "\u202e" not in shown


WORDS = ("-m", "fake", "--seed", "3", "--max-tokens", "12", "--temperature", "2", "--top-k", "4", "the cat")


@pytest.fixture
def kept_trace(gencli, tmp_path):
    """A kept_trace with kept logits: few, or all."""

    def made(keep):
        file = tmp_path / f"{keep}.jsonl"
        assert gencli("run", *WORDS, "--trace", file, "--keep-logits", keep).code == 0
        return file

    return made


def records(found):
    assert found.code == 0, found.err
    return [json.loads(line) for line in found.out.splitlines()]


def test_a_named_token_that_was_chosen_has_the_record_of_the_trace(gencli, kept_trace):
    file = kept_trace("10000")
    own = [json.loads(line) for line in file.read_text().splitlines()][1:-1]
    for place in (0, 7):
        [found] = records(
            gencli("explain", file, "--why", f"#{own[place]['id']}", "--at", str(place), "--format", "jsonl")
        )
        assert {key: found[key] for key in ("raw", "final", "stages", "draw", "decided_by")} == {
            key: own[place][key] for key in ("raw", "final", "stages", "draw", "decided_by")
        }
        assert found["wins_without"] == []
        assert found["chosen"][0] == found["winner"][0] == found["id"]


def test_without_a_stage_in_its_way_the_named_token_comes(gencli):
    """What `wins_without` names, a run without that stage shows."""
    plain = ("-m", "fake", "--seed", "3", "--max-tokens", "1", "hi")
    [free] = records(gencli("explain", *plain, "--temperature", "2", "--format", "jsonl"))
    [seen] = records(
        gencli(
            "explain",
            *plain,
            "--temperature",
            "2",
            "--top-k",
            "1",
            "--why",
            f"#{free['id']}",
            "--format",
            "jsonl",
        )
    )
    assert (seen["removed_by"], seen["wins_without"]) == ("top_k", ["top_k"])
    page = gencli(
        "explain", *plain, "--temperature", "2", "--top-k", "1", "--why", f"#{free['id']}", "--at", "0"
    ).out
    assert page.endswith("removed by top_k; without top_k it would be chosen\n")


def test_rows_of_a_file_are_explained(gencli, tmp_path):
    for form in ["npy", "safetensors"]:
        rows = torch.randn(3, 50, generator=torch.Generator().manual_seed(0)) * 3
        file = tmp_path / f"rows.{form}"
        if form == "npy":
            np.save(file, rows.numpy())
        else:
            save_file({"a": rows, "b": rows[0].bfloat16()}, file)
            assert "has 2 tensors" in gencli("explain", "--logits-file", file).err, form
        tensor = () if form == "npy" else ("--tensor", "a")
        words = ("explain", "--logits-file", file, *tensor, "--top-k", "5", "--format", "jsonl")
        given = records(gencli(*words, "--tokens", "7,8,9"))
        assert [one["id"] for one in given] == [7, 8, 9], form
        for one, row in zip(given, rows, strict=True):
            assert one["raw"]["p"] == pytest.approx(float(row.softmax(0)[one["id"]]), rel=1e-5), form
            assert one["text"] == f"#{one['id']}", form
        assert len(records(gencli(*words, "--seed", "1"))) == 3, form


def test_special_tokens_have_their_names(gencli, tmp_path):
    rows = torch.zeros(2, 2048)
    rows[0, 1], rows[0, 6], rows[1, 6] = 9, 8, 9  # <|eos|> and <|end|> of tiny
    save_file({"rows": rows}, file := tmp_path / "rows.safetensors")
    words = ("explain", "--logits-file", file, "--model", "tiny", "--allow-ids", "1,6", "-t", "0")
    first, second = records(gencli(*words, "--format", "jsonl"))
    assert [(one["id"], one["text"], one["name"]) for one in (first, second)] == [
        (1, "", "<|eos|>"),
        (6, "", "<|end|>"),
    ]
    assert [name for _, name, _ in first["final"]["top"]] == ["<|eos|>", "<|end|>"]
    assert first["draw"]["runner_up"] == [6, "<|end|>"]
    page = gencli(*words, "--at", "0").out
    assert '"<|eos|>"' in page.splitlines()[0]
    assert 'runner-up "<|end|>"' in page
    assert '"<|end|>"' in gencli(*words).out.splitlines()[-1]
    assert 'why not "<|end|>" (id 6)?' in gencli(*words, "--at", "0", "--why", "#6").out


def test_without_a_tokenizer_a_text_names_no_token(gencli, tmp_path):
    np.save(file := tmp_path / "rows.npy", np.zeros(50, dtype=np.float32))
    words = ("explain", "--logits-file", file, "--why")
    gencli(*words, "fox").refused("there is no tokenizer that knows texts")
    gencli(*words, "").refused("it is empty")


def broken(folder):
    """Files that are no rows of logits."""
    with (folder / "pickle.npy").open("wb") as file:
        pickle.dump([1.0], file)
    np.save(folder / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    np.save(folder / "deep.npy", np.zeros((2, 2, 2)))
    np.save(folder / "nan.npy", np.array([0.0, np.nan]))
    np.save(folder / "masked.npy", np.full(3, -np.inf))
    np.save(folder / "text.npy", np.array(["a"]))
    np.save(folder / "empty.npy", np.zeros((0, 4)))
    (folder / "cut.npy").write_bytes((folder / "deep.npy").read_bytes()[:90])
    (folder / "cut.safetensors").write_bytes(b"\xff" * 20)
    return sorted([*folder.glob("*.npy"), *folder.glob("*.safetensors"), folder / "absent.npy"])


def test_other_files_are_refused(gencli, tmp_path):
    for file in broken(tmp_path):
        gencli("explain", "--logits-file", file).refused("Error: ")


def test_a_lesson_shows_what_is_left(gencli):
    page = gencli("explain", "--teach", "--top-k", "2", "--seed", "1").out
    lines = page.splitlines()
    assert next(line for line in lines if line.startswith(" floor")).split()[1::2] == [".220", ".423"]
    assert next(line for line in lines if line.startswith(" sofa")).split()[1:] == [".150", "███"]
    assert "2 words are left" in page
    assert lines[-1].endswith((" mat.", " floor."))
    assert "Here it changes nothing" in " ".join(gencli("explain", "--teach", "--top-k", "12").out.split())
    assert "moves mat" in " ".join(gencli("explain", "--teach", "--dry-multiplier", "0.8").out.split())


def test_what_does_not_go_together_is_refused(gencli):
    for words, said in [
        (("--at", "1", "--decided-by", "top_k", "hi"), "--at and --decided-by do not go together"),
        (("--teach", "hi"), "neither a prompt nor a trace"),
        (("--teach", "--at", "1"), "--at has no effect"),
        (("--tokens", "1", "hi"), "no --logits-file"),
        (("--replay", "hi"), "--replay needs a trace"),
        (("--why", "", "-m", "fake", "hi"), "it is empty"),
        (("--why", "#999999", "-m", "fake", "hi"), "outside the model's vocabulary"),
        (("--beams", "2", "hi"), "There is no option --beams"),
    ]:
        gencli("explain", *words).refused(said)


def test_a_trace_has_its_own_chain_and_perhaps_no_logits(gencli, kept_trace, tmp_path):
    file = kept_trace("5")
    assert "--top-k has no effect" in gencli("explain", file, "--top-k", "3").err
    plain = tmp_path / "plain.jsonl"
    gencli("run", *WORDS, "--trace", plain)
    found = gencli("explain", plain, "--why", "#7")
    assert "has no logits" in found.err
    assert "--keep-logits" in found.err
