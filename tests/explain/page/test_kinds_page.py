"""Pages of two chains, of a grid and of branches."""

import json

import pytest

from gencli.errors import GenerationError
from gencli.explain.page import Axis, Cell, CompareRow, Measure, PageNode, compare_page, sweep_page, tree_page
from tests.explain.page.samples import compared, forked, swept


def copied(tab):
    tab.value("Object.defineProperty(navigator, 'clipboard', { value: undefined, configurable: true })")
    tab.press("y")
    text = tab.value("document.getElementById('copied').value")
    tab.press("Escape")
    return text


def test_two_chains_show_where_they_part_and_differ(tab):
    tab.open(compared())
    assert tab.count(".token.parts") == 2
    tab.press("n")
    assert tab.text("#token-title") == "They differ"
    assert json.loads(copied(tab)) == {
        "pos": 1, "tv": 0.31, "kl": 0.6, "a": {"id": 2, "text": " cat"}, "b": {"id": 3, "text": " dog"},
        "decided": ["temperature"],
    }  # fmt: skip
    tab.press("n")
    assert "infinite" in tab.text("#panel")
    tab.click('.rows [data-place="1"] button')
    assert '" cat"' in tab.text("#panel")
    tab.press("b")
    assert tab.value("document.activeElement.closest('[data-text]').dataset.text") == "1"
    assert tab.troubles() == []


def test_a_grid_opens_the_text_of_a_cell(tab):
    tab.open(swept())
    tab.press("ArrowDown")
    tab.press("ArrowRight")
    assert tab.text("#token-title") == "temperature 1, min_p 0.1"
    assert tab.value("document.querySelector('blockquote').textContent.includes('(1, 1): a text')")
    tab.press("c")
    assert tab.text(".cell").startswith("0")
    tab.press("n")
    assert json.loads(copied(tab))["measures"] == {"entropy": 2.5, "tokens": 20}
    tab.click('.cell[data-row="2"][data-column="1"]')
    assert "no run" in tab.text("#panel")
    assert tab.troubles() == []


def test_branches_open_and_close(tab):
    tab.open(forked())
    assert tab.count("[role=treeitem]") == 5
    tab.press("ArrowRight")
    assert tab.text("#token-title") == '" cat"'
    tab.press("ArrowLeft")
    assert tab.count("[role=treeitem]") == 3
    tab.press("ArrowRight")
    tab.press("b")
    assert copied(tab) == "the dog"
    tab.click('[data-node="4"]')
    assert ".006" in tab.text("#panel")  # .6 of .01
    tab.press("Home")
    assert tab.text("#token-title") == "Root"
    assert tab.troubles() == []


def test_a_grid_may_have_one_axis_or_three(tab):
    axes = [Axis("a", "12"), Axis("b", "34"), Axis("c", "56")]
    for count in (1, 3):
        cells = [Cell((1,) * count, (0.5,), "text")]
        tab.open(sweep_page("A sweep", axes[:count], [Measure("m")], cells))
        assert tab.count("td.cell") == 2**count
        assert tab.count("td.cell:not(.empty)") == 1


def test_data_that_does_not_fit_is_refused():
    for make in [
        lambda: compare_page("", (None, None), [CompareRow(1, 0, 0, 1, 1), CompareRow(1, 0, 0, 1, 1)], {}),
        lambda: sweep_page("", [Axis("a", ["1"])], [Measure("m")], [Cell((1,), (1,), "")]),
        lambda: sweep_page("", [Axis("a", ["1"])], [Measure("m")], [Cell((0,), (1, 2), "")]),
        lambda: sweep_page("", [], [Measure("m")], []),
        lambda: tree_page("", [PageNode(0, None, None, "")], {}),
    ]:
        with pytest.raises(GenerationError):
            make()
