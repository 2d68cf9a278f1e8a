"""Whole runs with trees of drafts: 216 prompts a head, half of them static trees; a batch that is resumed."""

from __future__ import annotations

import json
from itertools import product

import pytest

from gencli.cli.app import main
from gencli.core.tree_shapes import read_tree_shape
from tests.speculative.agreeing_heads import FIRST, KINDS
from tests.speculative.head_runs import CONDITIONS, of_cells, pair

STATIC = "[[0],[1],[2],[0,0],[0,1],[1,0],[0,0,0],[0,0,1],[1,0,0],[0,1,0],[0,0,0,0]]"
SHAPES = tuple({"tokens": 4, "tree": read_tree_shape(shape)} for shape in (STATIC, "3x4x12"))
CELLS = tuple(product(SHAPES, (1, 5)))  # of drafts, and the batch size
PROMPTS = 9  # of a cell
TREES = [kind for kind in (*KINDS, *FIRST) if kind != "mtp deepseek of two layers"]  # which drafts chains


@pytest.mark.parametrize("kind", TREES)
@pytest.mark.parametrize("name", CONDITIONS)
def test_every_text_is_the_one_without_drafts(kind, name):
    for cell, found in of_cells(kind, name, CELLS, PROMPTS):
        assert 0 < found.accepted < found.nodes, cell


@pytest.mark.parametrize("kind", ["eagle3", "medusa", "dflash"])
def test_a_batch_that_is_resumed_has_the_same_texts(kind, tmp_path):
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    asked = [
        {"prompt": f"Once upon a time there was {word}", "seed": number, "temperature": number % 3 / 3}
        for number, word in enumerate("a fox|the sea|nobody|one king|two of them|a day".split("|") * 3)
    ]
    source.write_text("".join(json.dumps(row) + "\n" for row in asked))
    run = ("batch", str(source), "-o", str(target), "--model", pair(kind).model, "--dtype", "float32")
    run = (*run, "--max-tokens", "40", "--quiet", "--keep-journal")
    trees = ("--draft", pair(kind).head, "--draft-tokens", "4", "--draft-tree", STATIC)

    def texts(*flags):
        assert main([*run, *flags]) == 0, flags
        return [json.loads(line)["text"] for line in target.read_text().splitlines()]

    expected = texts()
    assert texts(*trees, "--max-batch", "5", "--overwrite") == expected
    journal = tmp_path / "out.jsonl.journal"
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(b"".join(lines[: len(lines) // 3]))  # what a run leaves that ends there
    target.unlink()
    assert texts(*trees, "--resume", "--max-batch", "3") == expected
