"""Beam search gives the sequences and scores of transformers, where the two agree by definition.

Entry by entry in docs/contributing/evidence.md: our bound is that of early_stopping="never", our `early_stopping` that of
true. A stage works on logits here and on logprobs there, which is one and the same for a model whose
logits are logprobs.
"""

from tests.slow.engine.beams.test_transformers import (
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
    for kind in ("llama", "opt", "mamba"):
        check_scores(kind)
