"""`gencli batch` from its arguments to its files, exit codes and messages."""

from gencli.helpers import size
from gencli.models.files.local_models import bundled_folder
from gencli.models.files.model_card import read_card
from tests.batch.conftest import FAKE
from tests.batch.test_command import ROWS, cut, in_memory


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
