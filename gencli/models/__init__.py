"""Models: the runner protocol, the fake model of the tests, and Hugging Face models."""
