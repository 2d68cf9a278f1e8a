"""`gencli chat` on the bundled model, its turns from a pipe."""

from tests.chat.test_chat import talk
from tests.cli.conftest import gencli


def test_a_transcript_that_is_loaded_goes_on_identically(talk, tmp_path):
    first, then = ["My name is Mia.", "/set top-p 0.95"], ["Tell me a sad story.", "/regen"]
    whole = talk([*first, *then], "--seed", "11", "--max-tokens", "40").out
    talk([*first, f"/save {tmp_path / 'a.json'}"], "--seed", "11", "--max-tokens", "40")
    rest = talk([f"/load {tmp_path / 'a.json'}", *then])
    assert rest.out == whole.split("\n", 1)[1]
    story, again = rest.out.splitlines()[0], rest.out.splitlines()[-1]
    assert story != again


def test_why_explains_an_answer_as_the_trace_of_its_run_does(talk, gencli, tmp_path):
    words = ("--seed", "11", "-t", "1.4", "--top-k", "30", "--max-tokens", "25")
    gencli("run", "--chat", *words, "--trace", tmp_path / "t", "Tell me a sad story.")
    whole, one = gencli("explain", tmp_path / "t").out, gencli("explain", tmp_path / "t", "--at", "9").out
    plain = talk(["Tell me a sad story.", "Why?"], *words)
    asked = talk(["Tell me a sad story.", "/why", "/set top-k 2", "/why 9", "/set top-k 30", "Why?"], *words)
    assert (asked.code, asked.out) == (0, plain.out)
    assert whole in asked.err
    assert one in asked.err
    kept = [line.split(";")[0] for line in plain.err.splitlines() if line.startswith("[prompt")]
    assert [line.split(";")[0] for line in asked.err.splitlines() if line.startswith("[prompt")] == kept
