"""The tree of a file, and what is refused as one."""

import json
import os

import jsonschema
import pytest

from gencli.errors import GenerationError, UsageError
from gencli.explain.text_sets import Node, Tree
from gencli.explain.tree_file import TreeFile, read_tree
from tests.cli.conftest import ROOT as FOLDER

SCHEMA = jsonschema.Draft202012Validator(json.loads((FOLDER / "docs" / "tree.schema.json").read_text()))
HEAD = {
    "run": "1", "sample": 0, "model": "fake", "prompt": "abc", "chain": [], "draw": "gumbel", "seed": 1,
    "preset": "model: fake\n", "code": {}, "files": {},
}  # fmt: skip
FIRST = Node(0, None, 0, "a", "abcd", (97, 98, 99, 100), reason="length")
CHILD = Node(1, 0, 2, "X", "XY", (88, 89), 2, 0.25, True, "eos", 7)
GRAND = Node(2, 1, 3, "Z", "Z", (90,), 3, 0.5, False, "length", 8)
OTHER = Node(3, 0, 1, "Q", "Q", (81,), 1, 0.5, False, "length", 9)


@pytest.fixture
def file(tmp_path):
    made = TreeFile.create(tmp_path / "tree.jsonl", Tree(HEAD).grown([FIRST]))
    made.add([CHILD])
    made.add([GRAND, OTHER])
    return made


def test_a_text_is_its_parents_up_to_where_it_parts(file, tmp_path):
    assert [file.tree.text(node) for node in range(4)] == ["abcd", "abXY", "abXZ", "aQ"]
    assert file.tree.ids(2) == (97, 98, 88, 90)
    assert [(depth, node.id) for depth, node in file.tree.walk()] == [(0, 0), (1, 3), (1, 1), (2, 2)]
    assert [node.id for node in file.tree.children(0)] == [3, 1]

    nodes = [FIRST, *(Node(n, n - 1, 1, "x", "x", (120,), 1) for n in range(1, 3000))]
    tree = TreeFile.create(tmp_path / "tree", Tree(HEAD).grown(nodes)).tree
    assert tree.text(2999) == "ax"
    assert [depth for depth, _ in tree.walk()] == [*range(3000)]


def test_a_file_is_read_as_it_was_written_and_is_as_the_schema_says(file):
    assert read_tree(file.path) == file.tree
    file.prune(1)
    assert read_tree(file.path) == file.tree
    assert ([*file.tree.nodes], file.tree.next_id) == ([0, 3], 4)
    for line in file.path.read_text().splitlines():
        SCHEMA.validate(json.loads(line))


def test_a_link_is_not_followed_and_an_old_file_not_written_over(tmp_path, file):
    os.symlink(tmp_path / "other", tmp_path / "link")
    for path in (tmp_path / "link", file.path):
        with pytest.raises(UsageError, match="cannot be written"):
            TreeFile.create(path, file.tree)
    assert not (tmp_path / "other").exists()

    whole = file.path.read_bytes()
    with open(file.path, "ab") as out:
        out.write(b'{"v": 1, "kind": "no')
    again = TreeFile(file.path)
    assert again.tree == file.tree
    again.prune(3)
    assert file.path.read_bytes().startswith(whole)
    assert 3 not in read_tree(file.path).nodes


def changed(**values):
    line = {"v": 1, "kind": "node", "id": 4, "parent": 0, "at": 1, "token": "x", "text": "x", "ids": [1]}
    return line | {"kept": 0, "p": 0.5, "given": False, "reason": "eos", "seed": 1} | values


def test_a_line_that_is_none_of_a_tree_ends_in_an_error(file):
    whole = file.path.read_text()
    for line in [
        changed(id=1), changed(id=0, parent=None), changed(id=-1), changed(id=True), changed(id="4"),
        changed(parent=4), changed(parent=9), changed(parent=[]), changed(at=5), changed(at=10**30),
        changed(kept=5), changed(ids=[]), changed(ids=[-1]), changed(ids=[1.5]), changed(ids=[2**40]),
        changed(p=2), changed(p="x"), changed(text=1), changed(seed=2**64), changed(kind="other"),
        changed(v=2), {"v": 1, "kind": "node", "id": 4}, {"v": 1, "kind": "prune", "id": 0},
        {"v": 1, "kind": "prune", "id": 9}, {"v": 1, "kind": "tree", **HEAD}, [],
    ]:  # fmt: skip
        file.path.write_text(whole + json.dumps(line) + "\n")
        with pytest.raises(GenerationError, match="Line 6"):
            read_tree(file.path)


def test_a_head_that_does_not_say_how_to_run_it_or_another_file_ends_in_an_error(tmp_path):
    for values in [
        {"seed": "1"}, {"preset": None}, {"code": {"plugin": 1}}, {"code": {"output": "x"}},
        {"files": {"grammar": {}}}, {"files": {"grammar": {"path": "x", "sha256": 1}}},
    ]:  # fmt: skip
        path = tmp_path / "tree"
        path.write_text(json.dumps({"v": 1, "kind": "tree", **HEAD, **values}) + "\n")
        with pytest.raises(GenerationError, match="The description of the run is incomplete"):
            read_tree(path)

    for content in [b"", b"\xff\n", b"{\n", b"[" * 10**6 + b"\n"]:
        path = tmp_path / "tree"
        path.write_bytes(content)
        with pytest.raises((GenerationError, UsageError)):
            read_tree(path)
