"""In a batch that shares beginnings, every row has the token ids that it has alone."""

from __future__ import annotations

import random

from gencli.core.events import Error, Token
from gencli.core.request import Limits, Request
from gencli.engine.engine import Engine
from gencli.models.hf_runner import HFRunner
from gencli.models.model_runner import LaneRunner
from gencli.runtime.model_loading import ModelChoice, load
from gencli.text.tokenizer import ByteTokenizer, Tokenizer
from processors.chain import Chain
from tests.models.tiny_models import build


def ids_of(engine: Engine, requests: list[Request]) -> dict[str, tuple[int, ...]]:
    """The ids of each request; none of them fails."""
    ids: dict[str, tuple[int, ...]] = {request.id: () for request in requests}
    for request in requests:
        engine.submit(request)
    for event in engine.run():
        assert not isinstance(event, Error)
        if isinstance(event, Token):
            ids[event.request] += event.ids
    return ids


def requests_for(width: int, count: int) -> list[Request]:
    """Three beginnings of 40 tokens and rows without one; greedy and drawn in turns."""
    draw = random.Random(0)

    def words(least: int, most: int) -> tuple[int, ...]:
        return tuple(draw.choices(range(4, width), k=draw.randint(least, most)))

    heads = [words(40, 40) for _ in range(3)] + [()]
    chains = [Chain(), Chain.parse("temperature=0.9 | top_p=0.95")]
    return [
        Request(
            str(row),
            heads[row % 4] + words(1, 60),
            chains[row % 2],
            seed=row,
            draw="gumbel" if row % 2 else "greedy",
            limits=Limits(draw.randint(1, 12)),
        )
        for row in range(count)
    ]


def runner_of(kind: str, lanes: int) -> tuple[LaneRunner, Tokenizer]:
    """A model of its own with so many lanes."""
    if kind != "tiny":
        return HFRunner(build(kind), max_lanes=lanes), ByteTokenizer()
    loaded = load(ModelChoice("tiny", dtype="float32", max_batch=lanes))
    assert isinstance(loaded.runner, LaneRunner)
    return loaded.runner, loaded.tokenizer


def check_ids(kind: str, count: int) -> None:
    (together, tokenizer), (single, _) = runner_of(kind, 16), runner_of(kind, 1)
    requests = requests_for(min(together.spec.vocab_size, tokenizer.vocab_size), count)
    batch = ids_of(Engine(together, tokenizer, max_batch=16), requests)
    alone = Engine(single, tokenizer, max_batch=1, share_prefixes=False)
    assert batch == {key: ids for request in requests for key, ids in ids_of(alone, [request]).items()}


def test_ids_are_those_of_the_row_alone() -> None:
    check_ids("tiny", 24)
    check_ids("llama", 24)
