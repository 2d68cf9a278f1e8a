"""Shapes of draft trees: what a user or a file may write, and what is refused by name."""

import json

import pytest

from gencli.core.tree_shapes import (
    AUTO_TREE,
    DynamicTree,
    StaticTree,
    is_tree_file,
    num_straight,
    read_shape_text,
    read_tree_shape,
)
from gencli.errors import UsageError

# Of Medusa's medusa_choices.py and EAGLE's choices.py, in their order.
PUBLISHED = [[0], [0, 0], [1], [0, 1], [2], [0, 0, 0], [1, 0], [0, 2], [0, 0, 1], [0, 0, 0, 0], [0, 0, 0, 1]]


def refused(value):
    with pytest.raises(UsageError) as caught:
        read_tree_shape(read_shape_text(value))
    return caught.value.message


def test_paths_are_ordered_by_length_in_a_text_a_list_and_a_file(tmp_path):
    ordered = tuple(sorted(map(tuple, PUBLISHED), key=lambda path: (len(path), path)))
    for indent in (None, 2):
        text = json.dumps(PUBLISHED, indent=indent)
        (tmp_path / "choices.json").write_text(text, encoding="utf-8")
        for value in (text, str(tmp_path / "choices.json")):
            assert read_tree_shape(read_shape_text(value)) == StaticTree(ordered)
    shape = read_tree_shape(str(PUBLISHED))
    assert (shape.nodes, shape.depth) == (11, 4)
    assert shape.widths == {(): 3, (0,): 3, (1,): 1, (0, 0): 2, (0, 0, 0): 2}
    assert read_tree_shape(str(shape)) == shape


def test_sizes_and_words():
    assert read_tree_shape(" 4x5x16 ") == DynamicTree(4, 5, 16)
    assert read_shape_text("04x5x16") == "4x5x16"
    assert read_tree_shape("auto") == AUTO_TREE
    assert read_tree_shape("off") is None
    assert read_shape_text("off") == read_shape_text(" off\n") == "off"
    assert not any(map(is_tree_file, ("auto", "off", "1x2x3", "[[0]]", " [", "")))
    assert all(map(is_tree_file, ("choices.json", "1x2", "axbxc", "{}")))


def test_nodes_before_the_first_branch_each_follow_the_one_before():
    for parents, count in (
        ((), 0),
        ((-1,), 1),
        ((-1, 0, 1), 3),
        ((-1, -1, 0), 1),
        ((-1, 0, 0, 2), 2),
        ((0,), 0),
    ):
        assert num_straight(parents) == count


def test_what_is_no_tree_is_refused_by_name(tmp_path):
    for value, message in (
        ("[]", "The draft tree is no list of paths."),
        ("[[]]", "The draft tree: [] is no path of ranks from 0 to 63."),
        ("[0]", "The draft tree: 0 is no path of ranks from 0 to 63."),
        ("[[0], [true]]", "The draft tree: [true] is no path of ranks from 0 to 63."),
        ("[[0], [1.0]]", "The draft tree: [1.0] is no path of ranks from 0 to 63."),
        ("[[-1]]", "The draft tree: [-1] is no path of ranks from 0 to 63."),
        ("[[64]]", "The draft tree: [64] is no path of ranks from 0 to 63."),
        ('[["0"]]', 'The draft tree: ["0"] is no path of ranks from 0 to 63.'),
        ("[[0], [0]]", "The draft tree has [0] twice."),
        ("[[0], [1, 0]]", "The draft tree has [1, 0], but not [1]."),
        ("[[1]]", "The draft tree has [1], but not [0]."),
        ("[[0], [0, 1]]", "The draft tree has [0, 1], but not [0, 0]."),
        (
            json.dumps([[0] * (i + 1) for i in range(65)]),
            "The draft tree has 65 nodes, at most 64 are allowed.",
        ),
        ("", "The draft tree is empty."),
        ("0x5x16", "The width of the draft tree is 0, but has to be 1 to 64."),
        ("32x16x64", "A draft tree of 32x16 expands 512 tokens, at most 256 are allowed."),
        ("4x65x16", "The depth of the draft tree is 65, but has to be 1 to 64."),
        ("4x5x9999", "The number of nodes of the draft tree is 9999, but has to be 1 to 64."),
        ('{"a": 1}', 'The draft tree {"a": 1} cannot be read: No such file or directory.'),
        ('[[0], {"a": 1}]', 'The draft tree: {"a": 1} is no path of ranks from 0 to 63.'),
    ):
        assert refused(value) == message
    for text in ("[[0]", "[" * 100_000, "[[0]]]", "[[1e999]]", '[[0], "\\ud800"]', f"[[{'9' * 5000}]]"):
        assert refused(text).startswith(("The draft tree is no JSON: line 1", "The draft tree: "))
    for content, why in (
        (b"\xff\xfe", "cannot be read: 'utf-8' codec"),
        (b"[[0]]" + b" " * 70_000, "cannot be read: it has more than 65,536 bytes"),
        (b'{"a": 1}', "is no list of paths"),
        (b"secret words", "is no JSON: line 1"),
    ):
        (tmp_path / "t").write_bytes(content)
        message = refused(str(tmp_path / "t"))
        assert why in message, message
        assert "secret" not in message
    assert "cannot be read" in refused(str(tmp_path))
