"""Who decided a token and who was forgone, against what the engine chooses without the stage."""

from tests.slow.engine.test_deciding import check


def test_of_random_chains_a_stage_decided_a_token_if_the_engine_chooses_another_without_it():
    for seed in range(1, 8):
        check(seed)
