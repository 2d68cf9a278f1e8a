"""Beam searches and samples share one batch: neither waits for ever, and neither changes the other."""

from tests.engine.beams.harness import LETTERS, engine, request, search
from tests.engine.beams.test_beside import samples, texts_of
from tests.engine.harness import ends_of
from tests.engine.harness import request as plain


def test_a_search_finishes_under_a_steady_load_of_samples():
    """Two new samples for each that ends; fewer than 64 of them overtake the search."""
    for width in (2, 4):
        on, number, ends = engine(max_batch=4), 0, {}
        load = iter(samples(2000, max_tokens=4))
        for _ in range(8):
            on.submit(next(load))
        on.submit(request("search", width=width))
        while ("search", 0) not in ends:
            new = ends_of(on.step())
            ends |= new
            for _ in range(2 * len(new)):
                on.submit(next(load))
            number += 1
        alone = texts_of(search([request("search", width=width)]))
        assert texts_of({("search", 0): ends["search", 0]}) == alone, width
        assert len(ends) < 8 + 64 + 4 + 1, width


def test_searches_and_samples_of_one_batch_are_as_alone():
    for max_batch in (3, 5, 16):
        rows = [
            request("a", width=3, n=2, max_tokens=10),
            *samples(3, n=2, max_tokens=10),
            request("b", width=2, max_tokens=10),
            plain("best", chain=LETTERS, best_of=4, n=2, max_tokens=10),
            request("a long prompt, read in chunks", width=3, max_tokens=10),
        ]
        alone = {key: text for row in rows for key, text in texts_of(search([row])).items()}
        assert texts_of(search(rows, max_batch=max_batch, step_tokens=6)) == alone, max_batch
