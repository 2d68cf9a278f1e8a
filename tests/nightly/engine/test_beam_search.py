"""Beam searches against all continuations and against transformers."""

from tests.slow.engine.test_beam_search import (
    NUM_PROMPTS,
    check_heuristic,
    check_scores,
    check_sequences,
    check_stages,
)


def test_beams_of_each_model_are_those_of_transformers():
    for kind in ("llama", "gpt2", "qwen3"):
        check_sequences(kind, NUM_PROMPTS)
        check_stages(kind)
        check_heuristic(kind)
    for kind in ("llama", "opt", "mamba", "gemma3"):
        check_scores(kind)
