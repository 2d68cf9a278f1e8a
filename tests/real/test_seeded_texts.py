"""With few bits a seeded text is the same alone, in a batch, with drafts and trees, resumed and forked."""

import json

import pytest

from gencli import LLM
from gencli.cli.app import main
from scripts.same_text import make_asks
from tests.real.models import SMOL, folder, gguf

ASKS = make_asks(20, seed=6)
DRAWN = [ask for ask in ASKS if ask.options.get("temperature") != 0]
NUM_SAMPLES = 3


def generated(llm, asks, **options):
    """The samples of each text, one text after the other."""
    outs = [llm.generate(ask.prompt, **ask.options, **options) for ask in asks]
    return [[sample.text for sample in out.samples] for out in outs]


class Batch:
    """The texts as rows of `gencli batch`."""

    def __init__(self, where, bits):
        self._input, self._output = where / "in.jsonl", where / "out.jsonl"
        self._journal = where / "out.jsonl.journal"
        self._input.write_text("".join(json.dumps(ask.row) + "\n" for ask in ASKS))
        model = ("--model", str(folder(SMOL)), "--quantize", bits)
        self._run = ("batch", str(self._input), "-o", str(self._output), *model, "--quiet", "--keep-journal")

    def texts(self, *flags):
        assert main([*self._run, *flags]) == 0, flags
        return [json.loads(line)["text"] for line in self._output.read_text().splitlines()]

    def interrupt(self):
        """Leave what a run would that ended after a third of the rows."""
        lines = self._journal.read_bytes().splitlines(keepends=True)
        self._journal.write_bytes(b"".join(lines[: len(lines) // 3]))
        self._output.unlink()


@pytest.mark.parametrize("bits", ["int8", "int4"])
def test_seeded_texts_are_the_same_in_every_way(bits, tmp_path):
    model = {"model": str(folder(SMOL)), "quantize": bits}
    with LLM(**model, max_batch=1) as llm:
        texts = [text for (text,) in generated(llm, ASKS)]
        samples = generated(llm, DRAWN, n=NUM_SAMPLES)
    assert len(set(texts)) == len(ASKS)
    assert [first for first, *_ in samples] == [texts[ASKS.index(ask)] for ask in DRAWN]
    with LLM(**model, max_batch=8) as llm:
        assert generated(llm, DRAWN, n=NUM_SAMPLES) == samples  # forked behind the prompt
    batch = Batch(tmp_path, bits)
    assert batch.texts("--max-batch", "8") == texts
    batch.interrupt()
    assert batch.texts("--resume", "--max-batch", "3") == texts
    other = str(gguf(SMOL))  # which has other bits: some drafts are rejected
    for drafts in (("ngram",), ("ngram", "--draft-tree", "auto"), (other,), (other, "--draft-tree", "2x4x8")):
        assert batch.texts("--draft", *drafts, "--max-batch", "4", "--overwrite") == texts, drafts
