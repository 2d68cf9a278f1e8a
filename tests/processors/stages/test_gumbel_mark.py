"""gumbel_mark decides the token by key and context; repeated contexts are left to the draw."""

import torch

from processors.stages.watermarks import GumbelMark, GumbelMarkParams
from processors.testing.checks import Bench, Subject, Text, random_logits, toy_env
from tests.processors.reference.draw_twins import philox_uniform


def kept(params, output, prompt=(), *, logits=None):
    """The ids that are left behind an output."""
    bench = Bench(Subject.of(GumbelMark))
    bench.admit(0, params, Text(tuple(prompt), tuple(output), ()))
    logits = random_logits(1, toy_env()) if logits is None else logits
    return (bench.apply(logits, [0])[0] > -torch.inf).nonzero().flatten().tolist()


def test_the_token_is_the_largest_logit_plus_noise_of_the_context():
    logits = random_logits(1, toy_env(), masked=True)
    noise = torch.tensor(
        [philox_uniform(42, [-1, 5, 6, 7], token) for token in range(logits.shape[1])]
    ).double()
    winner = int((logits[0].double() - (-noise.log()).log()).argmax())
    assert kept(GumbelMarkParams(42), [5, 6, 7], logits=logits) == [winner]


def test_a_repeated_context_is_left_to_the_draw():
    for deduplicate, output, prompt, is_marked in [
        ("single_turn", [1, 2, 1, 2], [], False),
        ("single_turn", [1, 2], [1, 2], True),
        ("all", [1, 2], [1, 2], False),
        ("all", [1, 2], [2, 1], True),
        ("all", [1], [9, 9], False),  # the first tokens
        ("none", [1, 2, 1, 2], [], True),
    ]:
        params = GumbelMarkParams(7, width=2, deduplicate=deduplicate)
        assert (len(kept(params, output, prompt)) == 1) == is_marked, deduplicate
