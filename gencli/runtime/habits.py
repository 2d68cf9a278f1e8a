"""Attributes of other libraries (vLLM, transformers, openai, llama-cpp): an error names the one here."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["OF_COMPLETION", "OF_LLM", "OF_SAMPLE", "missing"]

_Habits = Mapping[str, str]  # from names elsewhere, separated by blanks, to what there is here

_OF_BOTH: _Habits = {
    "generated_text generated_texts output output_text content message response answer": "text",
    "stop_reason matched_stop stopping_word": "matched, beside finish_reason",
    "output_ids output_token_ids sequences": "token_ids",
    "cumulative_logprob scores": "logprobs, if the call asks for them",
}
OF_SAMPLE: _Habits = {
    **_OF_BOTH,
    "usage": "prompt_tokens and completion_tokens",
    "num_cached_tokens": "cached_tokens",
    "prompt_token_ids prompt": "that of the Completion",
}
OF_COMPLETION: _Habits = {
    **_OF_BOTH,
    "outputs choices generations candidates": "samples, as in out.samples[0].text; out.text is the first",
    "usage prompt_tokens completion_tokens": "samples[0].prompt_tokens and samples[0].completion_tokens",
    "num_cached_tokens cached_tokens": "samples[0].cached_tokens",
    "matched score value": "samples[0], which has it for the first sample",
    "prompt_ids input_ids": "prompt_token_ids",
}
OF_LLM: _Habits = {
    "complete create_completion completions invoke predict infer": "generate",
    "create_chat_completion chat_completion": "chat",
    "beam_search": "generate, with beams=N",
    "encode tokenize get_tokenizer": "tokenizer, as in llm.tokenizer.encode(text)",
    "generate_stream stream_generate": "stream",
    "llm_engine": "engine",
    "model config": "spec",
    "shutdown": "close",
}


def missing(value: object, name: str, habits: _Habits) -> AttributeError:
    """Return the error of an attribute that a value does not have."""
    instead = next((here for names, here in habits.items() if name in names.split()), "")
    said = f"{type(value).__name__} has no attribute {name!r}."
    return AttributeError(f"{said} Take {instead}." if instead else said, name=name, obj=value)
