"""Near the limit of tokens masks keep what leaves room for the document's end, in few tries."""

from itertools import product

from tests.slow.processors.grammar.test_narrowing import BACKENDS, check


def test_what_goes_is_what_would_go_wherever_the_document_ends():
    for name, begun in product(BACKENDS, ('{"a":"', '{"a":"some text', '{"a":"", "b":["x"', '{"a":')):
        check(name, begun)
