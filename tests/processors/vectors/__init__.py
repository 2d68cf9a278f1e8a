"""Golden cases of other systems: data with their source. tests/processors/test_vectors.py runs them."""
