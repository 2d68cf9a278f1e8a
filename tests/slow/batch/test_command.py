"""`gencli batch` from its arguments to its files, exit codes and messages."""

from gencli.units import size
from tests.batch.test_command import ROWS


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
