"""The table of all options of a run: names, type, help, bounds, default, and the stage that they set,
which has help, bounds and default of its own declaration. Imports nothing heavy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from types import UnionType
from typing import Any, Literal, get_args

from gencli.config.option import MAX_BATCH, MAX_SAMPLES, MAX_SECONDS, Option, read_pairs
from gencli.config.result_formats import FORMATS, RECORDS_LISTED
from gencli.core.request import NO_DRAFTER
from gencli.core.tree_shapes import MAX_NODES, NO_TREE, read_shape_text
from gencli.errors import UsageError
from gencli.text.escapes import unescape
from processors.catalog import BUILTIN, Draw
from processors.params import MOST, Bounds, describe, whole
from processors.registry import builtin_registry
from processors.request_values import MATCH, THINKING, WHITESPACE, Policy, When
from processors.stages.grammar_stage import WHITESPACE_LIMIT

Compat = Literal[
    "llama-cpp", "llama-cpp-mirostat", "hf", "vllm", "vllm-v2", "sglang", "tgw", "tgw-hijack", "koboldcpp",
    "koboldcpp-mirostat", "exl2", "exl3", "mlx", "aphrodite",
]  # fmt: skip
# Systems that prefer the values of a model's generation_config.json to their own; it overrides these
# profiles.
READS_MODEL: frozenset[str] = frozenset(("hf", "vllm", "vllm-v2", "sglang", "aphrodite"))
NO_AMATEUR = "none"
GUIDES = ("guidance", "negative")
CONTRASTS = ("contrast", "contrast_alpha", "contrast_beta")
IN_PROMPT = ("auto", "off", "on")  # values of `schema_in_prompt` besides a text
PENALTY_STAGES = ("repetition", "frequency", "presence")
_STRONGEST = 1e6


def profiles() -> tuple[str, ...]:
    """Return the names of all profiles."""
    return get_args(Compat)


def _read_tokens(value: Any) -> int | str:
    if value == "auto" or isinstance(value, int):
        return str(value) if value == "auto" else value
    if (number := whole(str(value))) is None:
        raise UsageError(f"{str(value)[:60]!r} is neither a whole number nor auto.")
    return number


def _read_layers(value: str | Sequence[int]) -> str | tuple[int, ...]:
    if value in ("low", "high"):
        return str(value)
    parts = value.split(",") if isinstance(value, str) else [str(part) for part in value]
    layers = [whole(part.strip()) for part in parts]
    if None in layers or not layers:
        raise UsageError(f"{str(value)[:60]!r} is neither low, high nor layers such as 2,4,6.")
    return tuple(layer for layer in layers if layer is not None)


def read_ids(texts: Sequence[str]) -> tuple[int, ...]:
    """Return the ids of texts such as "1,2,3". Raises UsageError."""
    ids = []
    for part in (part.strip() for text in texts for part in text.split(",")):
        if (number := whole(part)) is None:
            raise UsageError(f"{part[:60]!r} is not a token id.", hint="Ids are written 3,14,15.")
        ids.append(number)
    return tuple(ids)


def read_texts(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(map(unescape, texts))


def _read_bias(texts: Sequence[str]) -> tuple[tuple[int | str, float], ...]:
    # As in "42=1.5" and " word=-2"; digits are a token id.
    pairs: list[tuple[int | str, float]] = []
    for text in texts:
        token, equals, number = text.rpartition("=")
        try:
            value = float(number)
        except ValueError:
            equals = ""
        if not equals or not token:
            raise UsageError(f"{text!r} is not of the form ID=NUMBER or TEXT=NUMBER.")
        token_id = whole(token)
        pairs.append((unescape(token) if token_id is None else token_id, value))
    return tuple(pairs)


def _dry_breakers(texts: Sequence[str]) -> tuple[str, ...]:
    # "none" alone means no breaker, as in llama.cpp.
    return () if list(texts) == ["none"] else read_texts(texts)


def _read_decay(text: str) -> tuple[int, float]:
    start, colon, factor = text.partition(":")
    number = whole(start)
    try:
        value = float(factor)
    except ValueError:
        colon = ""
    if not colon or number is None:
        raise UsageError(f"{text!r} is not of the form START:FACTOR.", hint="30:1.05 starts after 30 tokens.")
    return number, value


def _read_order(value: str | Sequence[str]) -> tuple[str, ...]:
    parts = value.split(",") if isinstance(value, str) else value
    names = tuple(part.strip() for part in parts)
    for name in names:
        if not name.replace("_", "").isalnum():
            hint = "`chain` gives only the order; values go to `stage`."
            raise UsageError(f"{name!r} is not a stage.", hint=hint)
    return names


# Stages and fields by keys of options: a stage's name is its main value, and mirostat_tau is a field.
_FIELDS = {
    f"{spec.name}_{field.name}": (spec.name, field.name)
    for spec in BUILTIN
    for field in spec.params.own_fields()
} | {spec.name: (spec.name, spec.params.main()) for spec in BUILTIN}


def _for_stage(*names: str, of: str = "", **changes: Any) -> Option:
    # An option of a stage's field, from the field's declaration. `of`: the field's key in _FIELDS, if the
    # option has another one.
    stage, field = _FIELDS[of or names[0].strip("-").replace("-", "_")]
    params = builtin_registry().spec(stage).params
    about = describe(params)[field]
    kinds = get_args(about["type"]) if isinstance(about["type"], UnionType) else (about["type"],)
    kind = kinds[0] if kinds[0] in (int, float, bool) else str
    hint = params.__dataclass_fields__[field].metadata["hint"]
    declared = Option(
        names, kind, about["doc"], "Chain", about["default"], about["bounds"],
        stage=stage, field=field, hint=hint,
    )  # fmt: skip
    return dataclasses.replace(declared, **changes)


def _for_penalties(*names: str, field: str, kind: Any, **changes: Any) -> Option:
    # Without the option each penalty keeps the default of its stage.
    about = describe(builtin_registry().spec("frequency").params)[field]
    about["doc"] = about["doc"].replace("; null is all", "")  # an option without a value is not given
    text = f"For all penalties that are on: {about['doc'][0].lower()}{about['doc'][1:]}"
    return Option(names, kind, text, "Chain", bounds=about["bounds"], field=field, **changes)


OPTIONS: tuple[Option, ...] = (
    Option(("--file", "-f"), str, "Read the prompt from this file; one newline at its end is dropped.",
           "Prompt", (), many=True, metavar="FILE", flag_only="a prompt belongs to one run"),
    Option(("--chat",), bool, "Put the prompt into the model's chat template.", "Prompt", False),
    Option(("--raw",), bool, "Give the model the prompt as it is (the default).", "Prompt", False),
    Option(("--system",), str, "System message of the chat template.", "Prompt", metavar="TEXT"),
    Option(("--template",), str, "Render the prompt with a Jinja template: a name in a folder of templates, "
           "a file, or the text. Its variables are prompt, stdin and those of `vars`; in a batch, the "
           "columns.", "Prompt", metavar="NAME|FILE|TEXT"),
    Option(("--var",), tuple[str, str], "Set a variable of the template.", "Prompt", (), many=True,
           read=read_pairs, metavar="NAME=TEXT", key_name="vars"),
    Option(("--preset",), str, "Values from a preset: a name (see gencli config list) or a file, as in "
           "./mine.yaml. A later one wins.", "Presets", (), many=True, metavar="NAME",
           flag_only="a preset builds on others with extends"),
    Option(("--compat",), Compat, "The order and the values of another system's chain, below all that you "
           f"set; what it cannot reproduce is said on stderr: {', '.join(profiles())}.", "Presets",
           metavar="NAME"),
    Option(("--model", "-m"), str, "A model folder, a GGUF file, an alias, or a name of the hub, as in "
           "org/name, org/name@revision or org/name:Q4_0. tiny, tiny-draft and fake come with gencli.",
           "Model", "tiny", metavar="NAME"),
    Option(("--download",), bool, "Download a missing model of the hub without asking. On a terminal it is "
           "downloaded anyway, from 10 GB on after a question.", "Model", False,
           flag_only="a file must not be able to use the network"),
    Option(("--offline",), bool, "Download nothing.", "Model", False,
           flag_only="it is about the machine, not about a run"),
    Option(("--dtype",), Literal["auto", "float32", "bfloat16", "float16"], "Number format of the weights.",
           "Model", "auto"),
    Option(("--backend",), Literal["auto", "native", "transformers"], "What runs the model: gencli's own "
           "decoder, or transformers. auto takes the decoder for every model that it knows in full.", "Model",
           "auto"),
    Option(("--quantize",), Literal["none", "int8", "int4"], "Round weights to 8 or 4 bits when they are "
           "loaded, for gencli's own decoder on a CPU or an NVIDIA GPU.", "Model", "none"),
    Option(("--kernel",), Literal["auto", "plain", "packed", "row-packed", "fixed"], "Matrix products of the "
           "decoder: with weights as they are, packed for the CPU, packed for a single text, or with one "
           "order of sums on a GPU. auto takes what is fastest on this machine; gencli doctor shows the "
           "times.", "Model", "auto"),
    Option(("--invariant",), Literal["auto", "on", "off"], "Whether the bits of a text must not depend on "
           "what is computed beside it. auto: if that makes a step at most 5 % longer.", "Model", "auto"),
    Option(("--kv-dtype",), Literal["auto", "float32", "bfloat16", "float16", "fp8", "int8"], "Number format "
           "of keys and values in memory, for the decoder; auto is that of the computations. fp8 and int8 "
           "take a quarter of float32; int8, with a scale for each token and head, is the closer one.",
           "Model", "auto"),
    Option(("--device",), str, "auto, cpu, cuda, cuda:N or mps.", "Model", "auto", metavar="DEVICE"),
    Option(("--cuda-graphs",), Literal["auto", "on", "off"], "Whether decode steps on a CUDA GPU are "
           "recorded, each to be launched as a whole. auto: where the model allows it.", "Model", "auto"),
    Option(("--device-map",), Literal["auto"], "Spread the layers over all devices, for a model that is too "
           "large for one; needs accelerate.", "Model"),
    Option(("--tp",), int, "Split each layer over this many processes, which torchrun --nproc-per-node N -m "
           "gencli starts.", "Model", bounds=Bounds(ge=2, le=1024)),
    Option(("--threads",), int, "CPU threads; by default PyTorch decides.", "Model",
           bounds=Bounds(ge=1, le=1024)),
    Option(("--wait",), Literal["auto", "spin", "sleep"], "How CPU threads wait for each other: spinning is "
           "faster on a quiet machine, sleeping on one whose cores others use; auto finds out which it is.",
           "Model", "auto"),
    Option(("--max-batch",), int, "Samples that run at once.", "Model", 8, Bounds(ge=1, le=MAX_BATCH)),
    Option(("--async/--no-async",), bool, "Launch each step on a GPU before the last one has been read, so "
           "that the GPU does not wait for the host. What is computed beside a text may change, as with "
           "another `max_batch`. By default it is on where the GPU and the model allow it.", "Model",
           key_name="async_steps"),
    Option(("--memory-check",), Literal["on", "off"], "Refuse a model that does not fit into the free memory "
           "before it is loaded; off tries.", "Model", "on"),
    Option(("--trust-remote-code",), bool, "Run Python code that comes with the model.", "Model", False,
           flag_only="a file must not be able to run code"),
    _for_stage("--temperature", "-t"),
    _for_stage(
        "--thinking-temperature",
        of="temperature",
        when=When(inside=THINKING),
        help="Temperature inside thinking: from <think> to </think>, or up to the text of `constrain_after`.",
    ),
    _for_stage("--top-k"),
    _for_stage("--top-p"),
    _for_stage("--min-p"),
    _for_stage("--top-n-sigma"),
    _for_stage("--epsilon"),
    _for_stage("--eta"),
    _for_stage("--top-a"),
    _for_stage("--p-less"),
    _for_stage("--typical"),
    _for_stage("--tfs"),
    _for_stage("--top-h"),
    _for_stage("--min-k"),
    _for_stage("--xtc-probability"),
    _for_stage("--xtc-threshold"),
    _for_stage("--dynatemp-min", of="dynamic_temperature_min"),
    _for_stage("--dynatemp-max", of="dynamic_temperature_max"),
    _for_stage("--dynatemp-range", of="dynamic_temperature_range"),
    _for_stage("--dynatemp-exponent", of="dynamic_temperature_exponent"),
    _for_stage("--edt"),
    _for_stage("--smoothing"),
    _for_stage("--smoothing-curve"),
    _for_stage("--mirostat"),
    _for_stage("--mirostat-tau"),
    _for_stage("--mirostat-eta"),
    _for_stage("--skew"),
    _for_stage("--adaptive-target", of="adaptive_p"),
    _for_stage("--adaptive-decay", of="adaptive_p_decay"),
    _for_stage("--repetition-penalty"),
    _for_stage("--frequency-penalty"),
    _for_stage("--presence-penalty"),
    _for_stage("--no-repeat-ngram"),
    _for_stage("--dry-multiplier"),
    _for_stage("--dry-base"),
    _for_stage("--dry-allowed-length", of="dry_allowed"),
    _for_stage("--dry-window"),
    _for_stage("--dry-breaker", of="dry_breakers", many=True, read=_dry_breakers, metavar="TEXT"),
    _for_stage("--lz"),
    _for_stage("--length-boost"),
    _for_stage("--length-decay", read=_read_decay, metavar="START:FACTOR"),
    _for_stage("--sequence-bias", many=True, read=_read_bias, metavar="TEXT=NUMBER"),
    _for_penalties("--penalty-scope", field="scope", kind=Literal["prompt", "output", "both"]),
    _for_penalties("--penalty-window", field="window", kind=int),
    _for_stage("--logit-bias", of="bias", many=True, read=_read_bias, metavar="TOKEN=NUMBER"),
    _for_stage("--allow-ids", of="allowed", many=True, read=read_ids, metavar="IDS"),
    _for_stage("--suppress-ids", many=True, read=read_ids, metavar="IDS"),
    _for_stage("--ban", many=True, read=read_texts, metavar="TEXT"),
    _for_stage("--min-tokens"),
    _for_stage("--ignore-eos"),
    _for_stage("--begin-suppress-ids", many=True, read=read_ids, metavar="IDS"),
    _for_stage("--eos-above"),
    _for_stage("--ban-rewind"),
    _for_stage("--force-text", read=unescape, metavar="TEXT"),
    _for_stage("--reasoning-budget"),
    _for_stage("--reasoning-message", of="reasoning_budget_message", read=unescape, metavar="TEXT"),
    Option(("--stage",), str, "Any stage: name, name=value or name:key=value,key=value.", "Chain", (),
           many=True, metavar="STAGE", flag_only="stages go under stages: or chain:"),
    Option(("--plugin",), str, "Add your own stage: path.py, path.py:Class or module:Class.", "Chain", (),
           many=True, metavar="PLUGIN", flag_only="a file must not be able to run code"),
    Option(("--chain",), str, "Order of the stages, as in penalties,temperature,min_p,top_k: stages, phases, "
           "or penalties for all three.", "Chain", (), read=_read_order, metavar="STAGES"),
    Option(("--temperature-last",), bool, "Apply the temperature as the last stage before sampling.", "Chain",
           False),
    Option(("--watermark",), Literal["none", "kgw", "synthid", "gumbel"], "Mark the text, so that whoever "
           "has the key can tell that it was generated (gencli detect).", "Chain", "none"),
    Option(("--watermark-key",), str, "The key of the watermark: a file with a whole number, or with a "
           "mapping of the watermark's values.", "Chain", metavar="FILE"),
    Option(("--guidance",), float, "Strength of the prompt (classifier-free guidance): 1 is off, larger "
           "values follow the prompt more, smaller ones less.", "Guidance", 1.0, Bounds(ge=0, le=_STRONGEST),
           metavar="SCALE"),
    Option(("--negative",), str, "The negative prompt of `guidance`; by default the last token of the "
           "prompt.", "Guidance", metavar="TEXT"),
    Option(("--contrast",), str, "Contrastive decoding: prefer tokens that this weaker model finds less "
           "likely. A name or folder of a model with the same vocabulary, or none.", "Guidance", NO_AMATEUR,
           metavar="NAME"),
    Option(("--contrast-alpha",), float, "With `contrast` or `dola`, remove tokens below this times the "
           "probability of the most likely one.", "Guidance", 0.1, Bounds(ge=0, le=1)),
    Option(("--contrast-beta",), float, "Strength of `contrast`; 0 leaves only its cutoff.", "Guidance", 0.5,
           Bounds(ge=0, le=_STRONGEST)),
    Option(("--dola",), str, "DoLa: prefer tokens that an early layer of the model finds less likely. low or "
           "high for every second layer of that half, or layers such as 2,4,6; each token takes the one that "
           "differs most.", "Guidance", read=_read_layers, metavar="LAYERS"),
    Option(("--sampler",), Draw, "The method of sampling a token.", "Draw", "gumbel"),
    Option(("--seed",), int, "The seed; equal seeds give equal texts. By default one is chosen and printed.",
           "Draw", bounds=Bounds(ge=0, le=2**64 - 1)),
    Option(("-n",), int, "Samples for each prompt.", "Draw", 1, Bounds(ge=1, le=MAX_SAMPLES)),
    Option(("--logprobs",), int, "Give the log-probability of each output token, under the model and after "
           "the stages, and those of this many alternatives: in JSON, or as text on stderr.", "Draw",
           bounds=Bounds(ge=0, le=MOST)),
    Option(("--prompt-logprobs",), int, "The same as `logprobs`, for the tokens of the prompt.", "Draw",
           bounds=Bounds(ge=0, le=MOST)),
    Option(("--beams",), int, "Beam search with this many beams instead of sampling; the `n` best texts are "
           "given; 0 is off.", "Search", 0, Bounds(ge=0, le=MAX_BATCH)),
    Option(("--length-penalty",), float, "The score of a finished text is the sum of its logprobs divided by "
           "its length to this power: above 0 favours long texts, below 0 short ones.", "Search", 1.0,
           Bounds(ge=-10, le=10)),
    Option(("--early-stopping",), bool, "End the search when there are as many finished texts as beams, even "
           "if a better one is possible.", "Search", False),
    Option(("--best-of",), int, "Draw this many samples and keep the `n` with the highest mean logprob per "
           "token; 0 is off.", "Search", 0, Bounds(ge=0, le=MAX_SAMPLES)),
    Option(("--contrastive-alpha",), float, "Contrastive search instead of sampling: of the most likely "
           "tokens take one whose state in the model is unlike those before it. Up to 1, the weight of that "
           "unlikeness against the probability; 0 is off.", "Search", 0.0, Bounds(ge=0, le=1)),
    Option(("--contrastive-k",), int, "Number of tokens among which each step of `contrastive_alpha` "
           "chooses; so many run side by side.", "Search", 4, Bounds(ge=1, le=MAX_BATCH)),
    Option(("--max-tokens",), int, "At most this many output tokens; 0, with `prompt_logprobs`, only scores "
           "the prompt.", "Limits and stops", 512, Bounds(ge=0, le=MOST)),
    Option(("--max-time",), float, "At most this many seconds for each prompt.", "Limits and stops",
           bounds=Bounds(gt=0, le=MAX_SECONDS)),
    Option(("--stop",), str, r"End before this text. C escapes are read: \n is a newline, \\n is \n itself.",
           "Limits and stops", (), many=True, read=read_texts, metavar="TEXT"),
    Option(("--stop-id",), int, "End at this token id.", "Limits and stops", (), Bounds(ge=0, le=MOST),
           many=True),
    Option(("--stop-regex",), str, "End before a match of this regular expression.", "Limits and stops", (),
           many=True, metavar="REGEX"),
    Option(("--include-stop",), bool, "Keep the matched stop in the text.", "Limits and stops", False),
    Option(("--loop",), int, "End when the text repeats itself this many times in a row; 0 is off.",
           "Limits and stops", 0, Bounds(ge=0, le=MOST)),
    Option(("--json",), bool, "The output is a JSON object.", "Structure", False),
    Option(("--json-schema",), str, "The output is a JSON document of this schema: a file, the schema "
           "itself, or names as in 'name, age int, tags[]'.", "Structure", metavar="SCHEMA"),
    Option(("--pydantic",), str, "The output is a JSON document of this pydantic model.", "Structure",
           metavar="MODULE:MODEL", flag_only="a file must not be able to run code"),
    Option(("--regex",), str, "The whole output matches this regular expression.", "Structure",
           metavar="REGEX"),
    Option(("--grammar",), str, "The output follows this grammar, a file or the text: GBNF, or xgrammar's "
           "EBNF; it begins at root.", "Structure", metavar="GRAMMAR"),
    Option(("--lark",), str, "The output follows this grammar in llguidance's Lark, a file or the text; it "
           "begins at start.", "Structure", metavar="GRAMMAR"),
    Option(("--choice",), str, "The output is one of the choices.", "Structure", (), many=True,
           metavar="TEXT"),
    Option(("--structural-tag",), str, "The output is free text with the tags that this file describes, in "
           "xgrammar's JSON.", "Structure", metavar="FILE"),
    Option(("--tools",), str, "The output may call these functions, OpenAI tool definitions in a file or as "
           "JSON, in the format of the model.", "Structure", metavar="TOOLS"),
    Option(("--tool-choice",), str, "auto: the model may call functions; required: it has to; a name: it has "
           "to call this function.", "Structure", "auto", metavar="CHOICE"),
    Option(("--schema-in-prompt",), str, "What the prompt tells the model of its output. auto: tools, where "
           "the chat template has no place for them; off: nothing; on: schema, choices or tools; or a text "
           "that has {schema}, {choices} or {tools}, and may have {call}, the form of a call.", "Structure",
           "auto", metavar="auto|off|on|TEXT"),
    Option(("--constrain-after",), str, "The output is free up to the end of this text, as in '</think>'; "
           "what follows it is the result.", "Structure", metavar="MARKER"),
    Option(("--grammar-backend",), Literal["auto", "xgrammar", "llguidance"], "The compiler of grammars; "
           "auto takes the one that enforces more of the grammar.", "Structure", "auto"),
    Option(("--grammar-timeout",), float, "At most this many seconds for compiling a grammar.", "Structure",
           30.0, Bounds(gt=0, le=MAX_SECONDS)),
    Option(("--schema-strict",), bool, "Refuse a schema that the mask does not enforce completely.",
           "Structure", False),
    Option(("--extra-properties",), bool, "Allow properties that the schema neither names nor forbids.",
           "Structure", False),
    Option(("--property-order",), Literal["schema", "any"], "The order of properties: that of the schema, or "
           "any.", "Structure", "schema"),
    Option(("--json-whitespace",), int, "At most this many consecutive characters of white space in a "
           "document.", "Structure", WHITESPACE, Bounds(ge=0, le=WHITESPACE_LIMIT)),
    Option(("--formats",), bool, "A document that violates a format of the schema is not valid.", "Structure",
           False),
    Option(("--partial",), bool, "Write an output that is incomplete or not valid as well; the exit code is "
           "6.", "Structure", False),
    Option(("--retries",), int, "Sample again, up to this many times, if an output is not valid.",
           "Structure", 0, Bounds(ge=0, le=MAX_SAMPLES)),
    Option(("--finish-open",), bool, "Complete a document that `max_tokens` cuts with a short completion; "
           "the finish reason is then closed.", "Structure", False),
    Option(("--jump-forward",), Literal["auto", "off"], "Draft text that the grammar forces, to need fewer "
           "forwards; the text is the same.", "Structure", "auto"),
    Option(("--parsed",), bool, "Write the document as compact JSON, in one line.", "Structure", False),
    Option(("--select",), str, "Write a part of the document by JSON Pointer: a string as text, other values "
           "as compact JSON.", "Structure", metavar="POINTER"),
    Option(("--draft",), str, "Draft tokens, so that one forward may give several; the text is the same. "
           "none, ngram, suffix, auto, early-exit, mtp, or a smaller model or a trained head: a name or a "
           "folder.", "Drafts", NO_DRAFTER, metavar="NAME"),
    Option(("--draft-tokens",), int | Literal["auto"], "At most this many draft tokens at a time; auto takes "
           "as many as save time.", "Drafts", "auto", Bounds(ge=1, le=64), read=_read_tokens,
           metavar="NUMBER"),
    Option(("--draft-tree",), str | tuple[tuple[int, ...], ...], "Draft trees, whose branches one forward "
           "verifies together. off: chains; auto: trees where they save time; WIDTHxDEPTHxNODES: of the "
           "NODES most likely tokens, where at each of DEPTH levels WIDTH tokens get WIDTH continuations; or "
           "the paths of all nodes, as in [[0],[1],[0,0]], or a file of them.", "Drafts", NO_TREE,
           Bounds(ge=0, le=MAX_NODES - 1), read=read_shape_text, metavar="SHAPE|FILE"),
    Option(("--draft-min-p",), float, "Draft only tokens with at least this probability in the drafter.",
           "Drafts", 0.0, Bounds(ge=0, le=1)),
    Option(("--verify",), Policy, "Which draft tokens are accepted. match: those that the model chooses, so "
           "the text is the same; rejection: texts have the same distribution; lossy-typical, "
           "lossy-threshold: more tokens, and the text may differ.", "Drafts", MATCH.policy),
    Option(("--verify-threshold",), float, "lossy-threshold accepts draft tokens with at least this "
           f"probability in the model; {MATCH.threshold} by default.", "Drafts", None, Bounds(gt=0, le=1)),
    Option(("--format",), Literal[tuple(FORMATS)], "Format of the result; by default that of the suffix of "
           "`output`, unless the output is a JSON document.", "Output", "text"),
    Option(("--output", "-o"), str, "Write the result to this file.", "Output", metavar="FILE",
           flag_only="a preset must not be able to write over a file"),
    Option(("--token-ids",), bool, "Add the token ids of the prompt and of the output to the records of "
           f"`format` = {RECORDS_LISTED}, stops included.", "Output", False),
    Option(("--trace",), str, "Write what each stage did to each token to this file, a line of JSON a token; "
           "gencli explain reads it.", "Output", metavar="FILE",
           flag_only="a preset must not be able to write over a file"),
    Option(("--trace-top",), int, "With `trace`, ids in each of its lists.", "Output", 5,
           Bounds(ge=1, le=100)),
    Option(("--keep-logits",), int, "With `trace`, keep this many of the largest logits of each token: other "
           "chains can be tried on them without the model.", "Output", bounds=Bounds(ge=1, le=MOST)),
    Option(("--stream/--no-stream",), bool, "Show text while it is generated, or when it is complete; text "
           "streams by default.", "Output"),
    Option(("--color",), Literal["off", "probability", "rank", "entropy", "decided"], "Colour the tokens of "
           "the text on a terminal: by their probability, rank or entropy under the model, or by the number "
           "of stages that decided them. entropy and decided explain each token, as `trace` does.", "Output",
           "off", flag_only="how a text looks is a matter of the terminal"),
    Option(("--quiet", "-q"), bool, "Print only errors on stderr.", "Output", False),
    Option(("--stats",), bool, "Print more on stderr: model, number format, times.", "Output", False),
    Option(("--log/--no-log",), bool, "Record the run in the log, which gencli log lists; off by default.",
           "Output", False),
    Option(("--show-chain",), bool, "Print each stage with its values and their origins; generate nothing.",
           "Output", False, flag_only="it asks a question and is no part of a run"),
    Option(("--show-prompt",), bool, "Print the prompt as the model gets it, special tokens included; "
           "generate nothing.", "Output", False, flag_only="it asks a question and is no part of a run"),
    Option(("--debug",), bool, "Show the traceback of an error, and the messages of libraries.", "Output",
           False, flag_only="it is for finding a fault in one run"),
)  # fmt: skip
PENALTY_OPTIONS: tuple[Option, ...] = tuple(o for o in OPTIONS if o.field and not o.stage)
STAGES: tuple[Option, ...] = tuple(o for o in OPTIONS if o.field)  # options of fields of stages
_BY_KEY = {entry.key: entry for entry in OPTIONS}


def option(key: str) -> Option:
    """Return the option with this key."""
    return _BY_KEY[key]
