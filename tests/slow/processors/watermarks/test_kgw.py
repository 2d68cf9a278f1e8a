"""Green tokens are those of transformers on a CPU, and those of a Mersenne Twister in plain Python."""

import torch
from transformers.generation import WatermarkLogitsProcessor

from processors.rng import Green
from processors.stages.watermarks import KgwParams
from tests.processors.reference.draw_twins import green_ids

SETTINGS = [
    {"greenlist_ratio": 0.25, "hashing_key": 15485863, "seeding_scheme": "lefthash", "context_width": 1},
    {"greenlist_ratio": 0.5, "hashing_key": 42, "seeding_scheme": "lefthash", "context_width": 3},
    {"greenlist_ratio": 0.1, "hashing_key": 2**62 + 12345, "seeding_scheme": "lefthash", "context_width": 1},
    {"greenlist_ratio": 0.25, "hashing_key": 15485863, "seeding_scheme": "selfhash", "context_width": 1},
    {"greenlist_ratio": 0.25, "hashing_key": 2**62 + 12345, "seeding_scheme": "selfhash", "context_width": 4},
]


VOCAB = 1009


def test_green_ids_are_those_of_transformers_and_of_the_twin():
    for settings in SETTINGS:
        theirs = WatermarkLogitsProcessor(VOCAB, "cpu", **settings)
        params = KgwParams(
            settings["hashing_key"],
            ratio=settings["greenlist_ratio"],
            scheme=settings["seeding_scheme"],
            width=settings["context_width"],
        )
        ours = Green(params, VOCAB)
        for context in ([5, 6, 7, 8], [0, 0, 0, 0], [1008, 3, 77, 1000], [9, 8, 7, 500]):
            expected = theirs._get_greenlist_ids(torch.tensor(context)).tolist()
            assert green_ids(params, VOCAB, context) == expected, settings
            if ours.is_self:
                *before, token = context[-params.width :]
                assert ours.among(before, [token]) == [token in expected], settings
            else:
                assert ours.after(context[-1]).nonzero().flatten().tolist() == sorted(expected), settings
