"""Small pages of each kind beside that of texts."""

from gencli.explain.page import (
    Axis,
    Cell,
    CompareRow,
    Measure,
    PageNode,
    Side,
    compare_page,
    sweep_page,
    tree_page,
)

NAMES = {1: "the", 2: " cat", 3: " dog", 4: "\n", 5: " sat"}


def compared(names=NAMES):
    """Two chains whose texts part at the second token."""
    sides = (Side("warm", "temperature=1.3", [1, 2, 5]), Side("cool", "temperature=0.7", [1, 3, 4, 5]))
    rows = [
        CompareRow(0, 0.02, 0.01, 1, 1),
        CompareRow(1, 0.31, 0.6, 2, 3, ("temperature",)),
        CompareRow(2, 0.9, float("inf"), 5, None, ("min_p",)),
    ]
    return compare_page("Once", sides, rows, names)


def swept(text="a text\nof two lines"):
    """Three temperatures and two cutoffs, without one of the cells."""
    axes = (Axis("temperature", ("0.5", "1", "1.5")), Axis("min_p", ("0", "0.1")))
    measures = (Measure("entropy", "nats"), Measure("tokens"))
    places = [(i, j) for i in range(3) for j in range(2) if (i, j) != (2, 1)]
    cells = [Cell(at, (0.5 + at[0] - at[1] / 4, 10 * at[0]), f"{at}: {text}", "gencli run") for at in places]
    return sweep_page("A sweep", axes, measures, cells)


def forked(names=NAMES, text=" sat\nthere"):
    """A root with two branches, the first of which has two more."""
    nodes = (
        PageNode(None, None, None, "the"), PageNode(0, 2, 0.6, f" cat{text}"), PageNode(0, 3, 0.1, " dog"),
        PageNode(1, 5, 0.3, " sat"), PageNode(1, 4, 0.01, "\n"),
    )  # fmt: skip
    return tree_page("Branches", nodes, names)
