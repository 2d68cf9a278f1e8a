"""Documentation of the built-in stages: formula, reference, example, counterparts in other tools.

Used by `gencli stages show` and the docs only. Imports no torch.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NOTES", "Note"]


@dataclass(frozen=True, slots=True)
class Note:
    """Notes on one stage. In the formula x are the incoming logits and p their softmax."""

    formula: str
    reference: str
    example: str
    elsewhere: str


NOTES: dict[str, Note] = {
    "tail": Note(
        "x[i] = -inf for i >= size",
        "Models pad their vocabulary; the ids behind the tokenizer's last one have no text.",
        "tail=32000",
        "set by gencli itself; llama.cpp and vLLM leave such ids to the model",
    ),
    "allowed": Note(
        "x[i] = -inf for i not in ids",
        "vLLM's allowed_token_ids.",
        "allowed=[42,43]",
        "vLLM allowed_token_ids, transformers prefix_allowed_tokens_fn",
    ),
    "suppress": Note(
        "x[i] = -inf for i in ids",
        "transformers' SuppressTokensLogitsProcessor.",
        "suppress=[0,1]",
        "transformers suppress_tokens, llama.cpp --logit-bias ID-inf",
    ),
    "ban": Note(
        "x[i] = -inf where output + token i holds a banned text, however it is cut into tokens",
        "Aho and Corasick 1975, on the bytes of the tokens.",
        'ban=["fox","once upon"]',
        "bad_words of transformers and vLLM see whole tokenizations only; ExLlamaV2 banned_strings rewinds",
    ),
    "min_tokens": Note(
        "x[i] = -inf for every end-of-text and stop id i while fewer than count tokens are there",
        "transformers' MinNewTokensLengthLogitsProcessor.",
        "min_tokens=20",
        "transformers min_new_tokens, vLLM and SGLang min_tokens",
    ),
    "ignore_eos": Note(
        "x[i] = -inf for every end-of-text id i",
        "vLLM's and llama.cpp's ignore_eos; here the id is masked, so none appears in the text.",
        "ignore_eos=true",
        "llama.cpp --ignore-eos masks as well; vLLM and SGLang generate the id and go on",
    ),
    "grammar": Note(
        "x[i] = -inf where output + token i begins no text of the grammar; ends of text where it is complete",
        "Willard and Louf 2023; the masks are xgrammar's and llguidance's.",
        'grammar:kind=regex,text="[0-9]+"',
        "vLLM, SGLang, llama.cpp, transformers (by plug-ins); most check or refuse drafts otherwise",
    ),
    "bias": Note(
        "x[i] = x[i] + bias[i]",
        "OpenAI's logit_bias.",
        'bias={"42": 1.5, " the": -2}',
        "vLLM, SGLang and llama.cpp logit_bias, transformers sequence_bias",
    ),
    "repetition": Note(
        "x[i] = x[i] / penalty if x[i] > 0 else x[i] * penalty, once for every token i seen",
        "Keskar et al. 2019, CTRL: A Conditional Transformer Language Model, arXiv 1909.05858.",
        "repetition:penalty=1.1,window=64",
        "transformers, vLLM, SGLang repetition_penalty; llama.cpp --repeat-penalty; mlx-lm",
    ),
    "frequency": Note(
        "x[i] = x[i] - penalty * (times that token i was seen)",
        "OpenAI's frequency_penalty.",
        "frequency=0.4",
        "vLLM, SGLang, mlx-lm frequency_penalty; llama.cpp --frequency-penalty",
    ),
    "presence": Note(
        "x[i] = x[i] - penalty for every token i seen",
        "OpenAI's presence_penalty.",
        "presence=0.6",
        "vLLM, SGLang, mlx-lm presence_penalty; llama.cpp --presence-penalty",
    ),
    "temperature": Note(
        "x = x / temperature; at 0 the most likely token is taken",
        "Ackley, Hinton and Sejnowski 1985, A Learning Algorithm for Boltzmann Machines.",
        "temperature=0.7",
        "everyone; before truncation in vLLM and transformers, after it in llama.cpp and mlx-lm",
    ),
    "min_p": Note(
        "x[i] = -inf where p[i] < p * max(p)",
        "Nguyen et al. 2024, Turning Up the Heat: Min-p Sampling, arXiv 2407.01082.",
        "min_p=0.05",
        "transformers, vLLM, SGLang, mlx-lm min_p; llama.cpp --min-p",
    ),
    "top_k": Note(
        "x[i] = -inf where x[i] is not among the k largest",
        "Fan, Lewis and Dauphin 2018, Hierarchical Neural Story Generation, arXiv 1805.04833.",
        "top_k:k=40,ties=keep",
        "everyone; ties stay in transformers and are cut in llama.cpp; in vLLM the back end decides",
    ),
    "top_p": Note(
        "keep the most likely tokens, in order, until their p sums up to p",
        "Holtzman et al. 2019, The Curious Case of Neural Text Degeneration, arXiv 1904.09751.",
        "top_p=0.9",
        "everyone; the token that crosses p stays, but not in ExLlamaV2",
    ),
}
