"""GGUF files, the format of llama.cpp: their header, configuration, weights and tokenizer."""
