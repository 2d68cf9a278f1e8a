"""The pieces of a tree, joined from the root, are the texts of its nodes."""

import json
import re
import zlib
from base64 import b64decode

from gencli.explain.page.html_pages import branches_page
from gencli.explain.text_sets import Node, Tree

HEAD = {"prompt": "P", "model": "m", "seed": 1}
NODES = [
    Node(0, None, 0, "", "one two three", (1, 2, 3)),
    Node(1, 0, 1, " x", " x y", (9, 8), kept=3, p=0.25),
    Node(2, 0, 2, " z", " z", (7,), kept=7, p=0.5),
    Node(3, 1, 2, " q", " q", (6,), kept=5, p=0.1),
    Node(4, 1, 1, " w", " w", (5,), kept=3, p=0.2),
    Node(5, 0, 0, "o", "other", (4,), kept=0, p=0.01),
    Node(6, 2, 3, "!", "!", (3,), kept=9, p=0.9),
]


def read(page):
    """The data of a page."""
    packed = re.search(r'id="data"[^>]*>([^<]+)<', page)[1]
    return json.loads(zlib.decompress(b64decode(packed)))


def test_branches_are_the_texts():
    tree = Tree(HEAD, {one.id: one for one in NODES})
    nodes = read(branches_page(tree))["nodes"]
    parents = {parent for parent, *_ in nodes}

    def text(index):
        return (text(nodes[index][0]) if nodes[index][0] >= 0 else "") + nodes[index][3]

    ends = {text(index) for index in range(len(nodes)) if index not in parents}
    assert ends == {tree.text(one) for one in (0, 1, 3, 4, 5, 6)}
    assert {(token, p) for _, token, p, _ in nodes if token is not None} == {
        (one.ids[0], one.p) for one in NODES[1:]
    }
