"""Golden cases of other systems: data with their source. tests/processors/test_vectors.py runs them."""

from tests.processors.vectors import exllama, formulas, llama_cpp, mlx_lm, transformers

__all__ = ["CASES"]

CASES = (
    *llama_cpp.CASES,
    *llama_cpp.TRUNCATION,
    *transformers.TRUNCATION,
    *mlx_lm.TRUNCATION,
    *exllama.TRUNCATION,
    *formulas.TRUNCATION,
    *llama_cpp.HISTORY,
    *transformers.HISTORY,
    *mlx_lm.HISTORY,
    *exllama.HISTORY,
    *transformers.FORCING,
    *llama_cpp.TEMPERATURE,
    *transformers.TEMPERATURE,
    *exllama.TEMPERATURE,
    *formulas.TEMPERATURE,
)
