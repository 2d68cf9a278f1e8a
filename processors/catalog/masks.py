"""Stages that mask tokens: by id, by text, for the end of a text, by a grammar."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from processors.errors import ParamError
from processors.params import MOST, Params, Phase, StageSpec, param
from processors.request_values import WHITESPACE, GrammarKind

BAN_LIMIT = 16384  # bytes of all banned texts; the stage's tables grow with them
REWIND_LIMIT = 256  # bytes of a text that is banned with rewind; up to this much output is held back
WHITESPACE_LIMIT = 1024


@dataclass(frozen=True, slots=True)
class TailParams(Params):
    """Mask the ids that the model has and the tokenizer does not."""

    size: int = param(
        0, "Number of ids the tokenizer knows; ids from there on are masked, 0 is off.", ge=0, le=MOST
    )


@dataclass(frozen=True, slots=True)
class AllowedParams(Params):
    """Allow only the listed ids."""

    ids: tuple[int, ...] | None = param(None, "Only these token ids may be chosen.", ge=0, le=MOST)

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        if self.ids == ():
            raise ParamError("ids is an empty list, which would allow nothing. Leave it out to allow all.")


@dataclass(frozen=True, slots=True)
class SuppressParams(Params):
    """Mask the listed ids."""

    ids: tuple[int, ...] = param((), "These token ids are never chosen.", ge=0, le=MOST)


@dataclass(frozen=True, slots=True)
class BeginSuppressParams(Params):
    """Mask the listed ids at the beginning of the output."""

    ids: tuple[int, ...] = param((), "These token ids are never the first one of the output.", ge=0, le=MOST)


@dataclass(frozen=True, slots=True)
class BanParams(Params):
    """Keep texts out of the output, however they are cut into tokens."""

    texts: tuple[str, ...] = param((), "These texts never appear in the output, not even inside a word.")
    rewind: bool = param(
        False,
        "Where such a text appears, go back to the token where it began, ban that one there and draw again.",
    )
    ignore_case: bool = param(
        False,
        "A to Z are as a to z; other letters are found as written, in lower or upper case, capitals first.",
    )

    def __post_init__(self) -> None:
        Params.__post_init__(self)
        longest = max((len(text.encode(errors="surrogatepass")) for text in self.texts), default=0)
        if self.rewind and longest > REWIND_LIMIT:
            raise ParamError(
                f"texts has one of {longest} bytes, but with rewind the limit is {REWIND_LIMIT}. "
                "Shorten it, or leave rewind out."
            )
        if "" in self.texts:
            path = (self.texts.index(""),)
            raise ParamError("texts has an empty text, which would ban everything. Remove it.", path)
        size = sum(len(text.encode(errors="surrogatepass")) for text in self.texts)
        if size > BAN_LIMIT:
            raise ParamError(f"texts are {size} bytes together, but the limit is {BAN_LIMIT}.")


@dataclass(frozen=True, slots=True)
class MinTokensParams(Params):
    """Mask every end-of-text and stop id until enough tokens are there."""

    count: int = param(
        0, "No end of text, stop id or stop string before this many output tokens.", ge=0, le=MOST
    )


@dataclass(frozen=True, slots=True)
class IgnoreEosParams(Params):
    """Mask the end-of-text ids, so that no end marker appears."""

    enabled: bool = param(False, "Never choose an end-of-text id.")


@dataclass(frozen=True, slots=True)
class EosAboveParams(Params):
    """End the text as soon as its end is likely."""

    p: float = param(
        0.0, "Allow only end-of-text ids where one is more probable than this; 0 is off.", ge=0, lt=1
    )


@dataclass(frozen=True, slots=True)
class GrammarParams(Params):
    """Allow only tokens that keep the output inside a grammar."""

    text: str = param("", "The grammar, written as `kind` says.")
    kind: GrammarKind = param("json_schema", "What the grammar is written in.")
    backend: Literal["trie", "xgrammar", "llguidance"] = param(
        "xgrammar", "What compiles it; trie is for choices."
    )
    whitespace: int = param(
        WHITESPACE,
        "At most this much white space in one place of a JSON document.",
        ge=0,
        le=WHITESPACE_LIMIT,
    )
    canonical: bool = param(
        True, "Text that the grammar forces is cut into tokens as the tokenizer would, without a choice."
    )
    in_budget: bool = param(True, "Near the limit of tokens, allow only what can still be completed.")
    after: str = param("", "The output is free up to the end of this text; then the grammar begins.")


MASKS = (
    StageSpec("tail", Phase.CONSTRAIN, TailParams, "processors.stages.masks:Tail").with_note(
        "x[i] = -inf for i >= size",
        "Models pad their vocabulary; the ids behind the tokenizer's last one have no text.",
        "tail=32000",
        "set by gencli itself; llama.cpp and vLLM leave such ids to the model",
    ),
    StageSpec("allowed", Phase.CONSTRAIN, AllowedParams, "processors.stages.masks:Allowed").with_note(
        "x[i] = -inf for i not in ids",
        "vLLM's allowed_token_ids.",
        "allowed=[42,43]",
        "vLLM allowed_token_ids, transformers prefix_allowed_tokens_fn",
    ),
    StageSpec("suppress", Phase.CONSTRAIN, SuppressParams, "processors.stages.masks:Suppress").with_note(
        "x[i] = -inf for i in ids",
        "transformers' SuppressTokensLogitsProcessor.",
        "suppress=[0,1]",
        "transformers suppress_tokens, llama.cpp --logit-bias ID-inf",
    ),
    StageSpec(
        "begin_suppress", Phase.CONSTRAIN, BeginSuppressParams, "processors.stages.masks:BeginSuppress"
    ).with_note(
        "x[i] = -inf for i in ids, at the first output position",
        "transformers' SuppressTokensAtBeginLogitsProcessor.",
        "begin_suppress=[220,50257]",
        "transformers begin_suppress_tokens",
    ),
    StageSpec("ban", Phase.CONSTRAIN, BanParams, "processors.stages.masks:Ban").with_note(
        "x[i] = -inf where output + token i holds a banned text, however it is cut into tokens; "
        "with rewind for the ids with which one began at this place",
        "Aho and Corasick 1975, on the bytes of the tokens.",
        'ban=["fox","once upon"]',
        "bad_words of transformers and vLLM see whole tokenizations only; rewind is what ExLlamaV2's and "
        "koboldcpp's banned_strings do",
    ),
    StageSpec("min_tokens", Phase.CONSTRAIN, MinTokensParams, "processors.stages.masks:MinTokens").with_note(
        "x[i] = -inf for every end-of-text and stop id i while fewer than count tokens are there",
        "transformers' MinNewTokensLengthLogitsProcessor.",
        "min_tokens=20",
        "transformers min_new_tokens, vLLM and SGLang min_tokens",
    ),
    StageSpec("ignore_eos", Phase.CONSTRAIN, IgnoreEosParams, "processors.stages.masks:IgnoreEos").with_note(
        "x[i] = -inf for every end-of-text id i",
        "vLLM's and llama.cpp's ignore_eos; here the id is masked, so none appears in the text.",
        "ignore_eos=true",
        "llama.cpp --ignore-eos masks as well; vLLM and SGLang generate the id and go on",
    ),
    StageSpec("eos_above", Phase.CONSTRAIN, EosAboveParams, "processors.stages.masks:EosAbove").with_note(
        "x[i] = -inf for every i that ends no text, where p[e] > p for an end-of-text id e",
        "transformers' BarkEosPrioritizerLogitsProcessor.",
        "eos_above=0.2",
        "transformers min_eos_p",
    ),
    StageSpec(
        "grammar", Phase.CONSTRAIN, GrammarParams, "processors.stages.grammar_stage:GrammarStage"
    ).with_note(
        "x[i] = -inf where output + token i begins no text of the grammar; ends of text where it is complete",
        "Willard and Louf 2023; the masks are xgrammar's and llguidance's.",
        'grammar:kind=regex,text="[0-9]+"',
        "vLLM, SGLang, llama.cpp, transformers (by plug-ins); most check or refuse drafts otherwise",
    ),
)
