"""Prompts that begin alike are read once, and no text knows of it."""

from dataclasses import replace

import pytest

from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.engine.scheduler import WINDOW
from gencli.models.hf_runner import HFRunner
from gencli.text.tokenizer import ByteTokenizer
from tests.engine.harness import generate, request, texts
from tests.engine.test_sharing import OTHER, SYSTEM, brief, order_of, read, rows
from tests.models.tiny_models import build


def test_texts_are_those_of_each_row_alone_and_what_was_copied_is_told():
    wanted = {key: end.text for one in rows() for key, end in generate([one]).items()}
    for step_tokens, max_batch in ((8, 2), (40, 5), (512, 1), (None, 32)):
        options = {"max_batch": max_batch, "step_tokens": step_tokens}
        fed, ends = read(rows(), **options)
        assert {key: end.text for key, end in ends.items()} == wanted, options
        assert fed == sum(end.prompt_tokens - end.cached_tokens for end in ends.values()), options
        assert texts(rows(), share_prefixes=False, **options) == wanted, options


def test_a_beginning_is_read_once():
    for max_batch, most in ((1, 24), (4, 24), (32, 24), (3, 1)):
        requests = [
            request(f"{SYSTEM}{letter}", key=letter, max_tokens=most) for letter in "abcdefghijklmnop"
        ]
        assert read(requests, max_batch=max_batch)[0] == len(SYSTEM) + len(requests), max_batch
        plain = read(requests, max_batch=max_batch, share_prefixes=False)[0]
        assert plain == sum(len(one.prompt_ids) for one in requests), max_batch


def test_none_is_overtaken_by_more_than_a_window():
    rest = [brief(f"{SYSTEM}{i}", i) for i in range(3 * WINDOW)]
    order = order_of([rest[0], brief(OTHER, "late"), *rest[1:]], max_batch=1)
    assert order.index("late") == WINDOW


@pytest.mark.parametrize("kind", ["llama", "stablelm", "mamba"])
def test_lanes_of_every_kind_are_shared(kind):
    model, tokenizer = build(kind), ByteTokenizer()
    head = tuple(b"some words that all of the prompts begin with ")
    requests = [Request(str(i), (*head, *b"row", 48 + i), seed=i, limits=Limits(8)) for i in range(5)]
    requests.append(replace(requests[0], id="again", n=2))

    def run(batch, **options):
        on = Engine(HFRunner(model, max_lanes=3), tokenizer, max_batch=3, **options)
        return texts(batch, on=on)

    assert run(requests) == run(requests, share_prefixes=False)
