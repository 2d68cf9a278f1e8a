"""Near the limit of tokens masks keep what leaves room for the document's end, in few tries."""

from itertools import product

from tests.processors.grammar.test_narrowing import CODE, EMAILS, SCHEMA, Open

BACKENDS = ("xgrammar", "llguidance")


def test_what_goes_is_what_would_go_if_each_token_were_tried():
    check("xgrammar", '{"a":"some text')
    check("llguidance", '{"a":"", "b":["x"')


def check(name, begun):
    on = Open(SCHEMA, name, begun.encode())
    path = on.path
    for left in range(len(path), len(path) + 4):
        before = on.matcher.tries
        narrowed = on.narrowed(left)
        between = on.matcher.tries
        fits = [one for one in on.legal if one == path[0] or on.fits_alone(one, left)]
        assert narrowed == fits, (name, begun)
        if len(on.legal) > len(CODE):
            assert 3 * (between - before) < on.matcher.tries - between, (name, begun)


def test_near_its_end_a_string_with_a_pattern_keeps_only_what_was_tried():
    for name, begun in product(BACKENDS, (b'["', b'["some.b', b'["a@b')):
        on = Open(EMAILS, name, begun)
        path = on.path
        for left in range(len(path), len(path) + 4):
            kept = on.narrowed(left)
            assert path[0] in kept, (name, begun)
            assert all(token == path[0] or on.fits_alone(token, left) for token in kept), (name, begun)
