"""What each option of `gencli run` is tried with in the walk over all pairs, and why some show no mark.

`option_walk` runs them.
"""

from dataclasses import dataclass
from itertools import product
from pathlib import Path

from gencli.config.run_options import STAGES

Arguments = dict[str, tuple[str, ...] | None]  # from a flag to its values; None is a switch


@dataclass(frozen=True)
class Feature:
    """An option's crafted use: `own` are its arguments, `setups` what it may need to act on.

    Of the setups of two options those are tried that do not contradict each other.
    """

    own: Arguments
    setups: tuple[Arguments, ...]


def feature(own, *setups):
    return Feature(own, setups or ({},))


def given(**setup):
    return {f"--{name.replace('_', '-')}": value for name, value in setup.items()}


PLUGIN = Path(__file__).parents[2] / "examples" / "plugin_minimal" / "gencli_max_run.py"
IDS = "1,6,97,98,99,100,101,102,103,104,105,257"  # a to i, and the ids that end a text
# With letters that the prompt lacks, so that a penalty's scope shows.
LETTERS = given(allow_ids=(IDS + ",109,110",))
# Behind one of f, g and h there has to be a z, which no run allows: some texts fail. Three letters are
# complete, and stops count from there on. The comma, which no run allows either, is a fast way to an end.
REGEX = "[a-ei-p,]{3,}([f-h]z)?"
# Many at the beginning, for what cuts a distribution, and some long ones.
CHOICES = tuple(
    one + other + rest
    for one, other in product("abcdefhm", repeat=2)
    for rest in ("", "b" + one, "g" + other, "e" + other * 2 + "bebfabeban")
)
# What JSON is written with, and what lets a text show that is cut.
JSON_IDS = ",".join(map(str, (10, 32, *b'{}[]":,', *b"012", *b"abcdefghimnprstu", 257)))
# With these, most strings are no regular expressions.
BRACKETS = "10,32,34,40,44,58,91,93,97,98,99,100,101,123,125,257"
JSON = given(allow_ids=(JSON_IDS,), partial=None)
# Its first character is a choice, its letters are those that are banned and biased, its format is
# something that only the check knows.
SCHEMA = """{"anyOf": [
    {"type": "array", "minItems": 1, "items":
        {"type": "string", "format": "regex", "minLength": 1, "maxLength": 3}},
    {"type": "object", "properties": {"a": {"enum": [1, 2]}}}
]}"""
# What an option that needs some structure may find beside it.
BY_REGEX = given(regex=(REGEX,)) | LETTERS
BY_SCHEMA = given(json_schema=(SCHEMA,)) | JSON
BY_STRINGS = given(json_schema=('{"type": "array", "minItems": 1, "items": {"type": "string"}}',)) | JSON
# Of these letters beams make a document with a blank, which a longer one beats only later.
BY_STRING_PAIR = given(
    json_schema=('{"type": "array", "minItems": 2, "items": {"type": "string"}}',),
    allow_ids=("32,34,44,91,93,97,98,257",),
    max_tokens=("20",),
)
OBJECT = '{"type": "object", "properties": {"e": {"type": "string", "format": "regex"}}, "required": ["e"]}'
OF_BRACKETS = given(json_schema=(OBJECT,), allow_ids=(BRACKETS,), max_tokens=("60",))
LIST = '{"type": "array", "items": {"type": "string", "format": "regex"}}'
BROKEN = OF_BRACKETS | given(formats=None)
BY_TOOLS = given(tools=("tools.json",), max_tokens=("60",)) | JSON
BY_OBJECT = given(json_schema=('{"type": "object", "properties": {"a": {"enum": [1, 2]}}}',)) | JSON
TWO = (
    '{"type": "object", "properties": {"a": {"enum": [1, 2]}, "b": {"enum": [1, 2]}}, "required": ["a", "b"]}'
)
BY_TWO = given(json_schema=(TWO,)) | JSON
# The fake model sees the last token only; with this, every token of a prompt counts.
COUNTED = given(frequency_penalty=("0.7",), penalty_scope=("both",))
# Too short for any structure, so that there is no valid output.
SHORT = given(max_tokens=("1",))
# As short, with a structure from the first token on.
CALL = SHORT | given(tools=("tools.json",), tool_choice=("required",)) | JSON
CUT = JSON | given(
    json_schema=(
        '{"type": "array", "minItems": 6, "items": {"type": "string", "minLength": 1, "format": "regex"}}',
    ),
    max_tokens=("16",),
)
CUT_OBJECTS = JSON | given(
    json_schema=('{"type": "array", "minItems": 6, "items": {"properties": {"a": {"enum": [1, 2]}}}}',),
    max_tokens=("16",),
)
# No text of it has room in the tokens that the walk allows, so that the limit cuts it.
BY_OPEN = given(regex=("[a-eg-p]{70}",)) | LETTERS
SEARCHES = (given(format=("json",)), given(allow_ids=("6,97,98,99,100,101,102,103,104,105,257",)))
BY_BEAMS = tuple(given(beams=("3",)) | setup for setup in ({}, *SEARCHES))
# A contrastive search prefers what the prompt lacks: x, and an end of the text.
LONG = given(allow_ids=("97,98,101,102,105,120,257",), ignore_eos=None, max_tokens=("60",))
BY_CONTRAST = tuple(given(contrastive_alpha=("0.6",)) | setup for setup in ({}, *SEARCHES, LONG))
WORDED = "{{ prompt }} {{ word | default('b') }}"
WITH_PROMPT = ({}, given(format=("json",)), COUNTED)

FEATURES = {
    "temperature": feature({"--temperature": ("0.3",)}),
    "top_k": feature({"--top-k": ("3",)}),
    "top_p": feature({"--top-p": ("0.8",)}),
    "min_p": feature({"--min-p": ("0.3",)}),
    "repetition_penalty": feature({"--repetition-penalty": ("1.5",)}),
    "frequency_penalty": feature({"--frequency-penalty": ("3",)}),
    "presence_penalty": feature({"--presence-penalty": ("3",)}),
    "penalty_scope": feature({"--penalty-scope": ("output",)}, given(repetition_penalty=("3",))),
    "penalty_window": feature({"--penalty-window": ("8",)}, given(repetition_penalty=("3",))),
    "logit_bias": feature({"--logit-bias": ("97=3", "98=3")}),
    "allow_ids": feature(
        {"--allow-ids": ("32,34,44,49,50,58,91,93,97,98,99,100,101,102,103,105,109,110,123,125,257",)}
    ),
    "suppress_ids": feature({"--suppress-ids": ("99,100",)}),
    "ban": feature({"--ban": ("a", "bc")}),
    "min_tokens": feature(
        {"--min-tokens": ("44",)}, given(max_tokens=("60",)), given(max_tokens=("60",), stop_regex=("[a-c]",))
    ),
    "ignore_eos": feature({"--ignore-eos": None}),
    "stage": feature({"--stage": ("bias=[[98,3]]",)}),
    # In one word, so that it stands beside the values of the option --stage.
    "plugin": feature({"--plugin": (str(PLUGIN),), "--stage=max_run=1": None}),
    "chain": feature(
        {"--chain": ("adjust,top_k,top_p,min_p,temperature",)}, given(temperature=("2",), top_p=("0.7",))
    ),
    "temperature_last": feature({"--temperature-last": None}, given(temperature=("2",), top_p=("0.7",))),
    # Both prompts end in other letters: the fake model sees no more of them.
    "guidance": feature({"--guidance": ("4",), "--negative": ("a",)}),
    "negative": feature({"--negative": ("l",)}, given(guidance=("4",))),
    # The amateur is the model itself, so that only the cutoff shows.
    "contrast": feature({"--contrast": ("fake",), "--contrast-alpha": ("0.003",)}),
    "contrast_alpha": feature({"--contrast-alpha": ("0.003",)}, given(contrast=("fake",))),
    "contrast_beta": feature({"--contrast-beta": ("2",)}, given(contrast=("fake",), contrast_alpha=("0",))),
    "watermark": feature({"--watermark": ("kgw",), "--watermark-key": ("kgw.yaml",)}, {}, COUNTED),
    "sampler": feature({"--sampler": ("multinomial",)}),
    "seed": feature({"--seed": ("77",)}),
    "n": feature({"-n": ("2",)}),
    "trace": feature({"--trace": ("trace.jsonl",)}),
    "logprobs": feature({"--logprobs": ("2",)}, {}, given(format=("json",))),
    "prompt_logprobs": feature({"--prompt-logprobs": ("2",)}, {}, given(format=("json",))),
    "token_ids": feature({"--token-ids": None}, given(format=("json",)), {}),
    # The seed changes nothing of a search; JSON has its values.
    "beams": feature({"--beams": ("3",)}, {}, *SEARCHES),
    "length_penalty": feature({"--length-penalty": ("0.4",)}, *BY_BEAMS),
    "early_stopping": feature({"--early-stopping": None}, *BY_BEAMS),
    "best_of": feature({"--best-of": ("3",)}, {}, given(format=("json",))),
    "contrastive_alpha": feature({"--contrastive-alpha": ("0.6",)}, {}, *SEARCHES, LONG),
    "contrastive_k": feature({"--contrastive-k": ("1",)}, *BY_CONTRAST),
    "max_tokens": feature({"--max-tokens": ("5",)}),
    "max_time": feature({"--max-time": ("0.000001",)}),
    "stop": feature({"--stop": ("ab", "d", "e")}),
    "stop_id": feature({"--stop-id": ("101", "105")}),
    "stop_regex": feature({"--stop-regex": ("[gh]",)}),
    "include_stop": feature({"--include-stop": None}, given(stop=("ab", "c")), {}),
    "loop": feature({"--loop": ("2",)}, {}, given(max_tokens=("60",))),
    "json": feature({"--json": None}, JSON),
    "json_schema": feature({"--json-schema": (SCHEMA,)}, JSON),
    "pydantic": feature({"--pydantic": ("walked_model:Walked",)}, JSON),
    "regex": feature({"--regex": (REGEX,)}, LETTERS, LETTERS | given(partial=None)),
    "grammar": feature(
        {"--grammar": ('root ::= [a-p,] [a-p,] ([a-p,] "b"?)+',)}, LETTERS, LETTERS | given(partial=None)
    ),
    "lark": feature({"--lark": ("start: /[a-p,][a-p,][a-p,]+/",)}, LETTERS, LETTERS | given(partial=None)),
    "choice": feature({"--choice": CHOICES}, LETTERS, LETTERS | given(partial=None)),
    "structural_tag": feature({"--structural-tag": ("tag.json",)}, LETTERS, LETTERS | given(partial=None)),
    "tools": feature({"--tools": ("tools.json",)}, JSON | given(max_tokens=("60",))),
    "tool_choice": feature({"--tool-choice": ("required",)}, BY_TOOLS),
    # A raw prompt ends as it does without it, so that the fake model sees it by what is counted.
    "schema_in_prompt": feature(
        {"--schema-in-prompt": ("on",)},
        COUNTED | BY_TWO,
        COUNTED,
        given(format=("json",)) | BY_SCHEMA,
        given(show_prompt=None),  # many choices make a prompt that is too long for the model
        {},
    ),
    "constrain_after": feature({"--constrain-after": ("a",)}, BY_REGEX, BY_SCHEMA, {}),
    "grammar_backend": feature(
        {"--grammar-backend": ("llguidance",)},
        BY_OBJECT,
        given(format=("json",)) | BY_OBJECT,
        given(stats=None),
    ),
    "grammar_timeout": feature({"--grammar-timeout": ("60",)}, BY_REGEX, {}),
    "schema_strict": feature({"--schema-strict": None}, BY_SCHEMA, {}),
    "extra_properties": feature({"--extra-properties": None}, BY_SCHEMA, BY_OBJECT, {}),
    "property_order": feature({"--property-order": ("any",)}, BY_TWO, {}),
    "json_whitespace": feature({"--json-whitespace": ("0",)}, BY_SCHEMA, BY_STRINGS, {}),
    "formats": feature(
        {"--formats": None},
        given(partial=None) | OF_BRACKETS,
        given(partial=None, allow_ids=(BRACKETS,)),
        given(partial=None, allow_ids=(BRACKETS,), json_schema=(LIST,)),
    ),
    "partial": feature({"--partial": None}, BROKEN, BY_REGEX, SHORT, BY_REGEX | SHORT),
    "retries": feature({"--retries": ("2",)}, BY_REGEX, BROKEN, SHORT | given(format=("json",)), {}),
    "jump_forward": feature({"--jump-forward": ("off",)}, BY_REGEX, {}),
    "finish_open": feature({"--finish-open": None}, BY_OPEN, CUT, SHORT, CALL, CUT_OBJECTS),
    "draft": feature({"--draft": ("suffix",)}),
    "draft_tokens": feature({"--draft-tokens": ("3",)}, given(draft=("ngram",))),
    "draft_tree": feature({"--draft-tree": ("auto",)}, given(draft=("ngram",))),
    "draft_min_p": feature({"--draft-min-p": ("0.5",)}, given(draft=("ngram",))),
    "verify": feature({"--verify": ("rejection",)}, given(draft=("ngram",))),
    "verify_threshold": feature(
        {"--verify-threshold": ("0.0001",)}, given(draft=("suffix",), verify=("lossy-threshold",))
    ),
    "parsed": feature({"--parsed": None}, BY_SCHEMA, BY_STRINGS, BY_STRING_PAIR, {}),
    "select": feature({"--select": ("/0",)}, BY_SCHEMA, BY_STRINGS, {}),
    "preset": feature({"--preset": ("./preset.yaml",)}),
    # Text shows only a prompt's last token, which a template decides; JSON has the prompt and its length.
    "file": feature({"--file": ("prompt.txt",)}, {}, given(format=("json",)), COUNTED),
    "chat": feature({"--chat": None}, {}, given(format=("json",)), COUNTED),
    "system": feature(
        {"--system": ("You tell sad stories.",)},
        given(chat=None, min_p=("0",), format=("json",)),
        given(chat=None, min_p=("0",)) | COUNTED,
        {},
    ),
    # The same in both, so that they stand together, with a default, so that the variable may go.
    "template": feature({"--template": (WORDED,)}, *WITH_PROMPT),
    "vars": feature({"--var": ("word=h",)}, *({"--template": (WORDED,)} | more for more in WITH_PROMPT)),
    "format": feature({"--format": ("jsonl",)}),
    "output": feature({"--output": ("out.txt",)}),
    "quiet": feature({"--quiet": None}),
    "stats": feature({"--stats": None}),
    "log": feature({"--log": None}),
    "show_chain": feature({"--show-chain": None}),
    "show_prompt": feature({"--show-prompt": None}),
    "raw": feature({"--raw": None}),
    "model": feature({"--model": ("fake",)}),
    "dtype": feature({"--dtype": ("float32",)}),
    "backend": feature({"--backend": ("auto",)}),
    "quantize": feature({"--quantize": ("none",)}),
    "kernel": feature({"--kernel": ("auto",)}),
    "invariant": feature({"--invariant": ("on",)}),
    "kv_dtype": feature({"--kv-dtype": ("float32",)}),
    "device": feature({"--device": ("cpu",)}),
    "cuda_graphs": feature({"--cuda-graphs": ("off",)}),
    "device_map": feature({"--device-map": ("auto",)}),
    "threads": feature({"--threads": ("1",)}),
    "wait": feature({"--wait": ("sleep",)}),
    "max_batch": feature({"--max-batch": ("1",)}),
    "async_steps": feature({"--no-async": None}),
    "memory_check": feature({"--memory-check": ("off",)}),
    "trust_remote_code": feature({"--trust-remote-code": None}),
    "download": feature({"--download": None}),
    "offline": feature({"--offline": None}),
    "stream": feature({"--no-stream": None}),
    "debug": feature({"--debug": None}),
}

# Options that must change nothing in the outcome of any other; the walk checks just that.
NEUTRAL = {
    "raw": "It spells out the default.",
    "model": "The walk names the model that every run has anyway.",
    "dtype": "float32 is what the fake model computes in.",
    "backend": "The walk's model is fake, which has one backend.",
    "quantize": "The walk's model is fake, whose table is not quantized.",
    "kernel": "The walk's model is fake, which has no matrix products.",
    "invariant": "The fake model computes each row by itself anyway.",
    "kv_dtype": "The fake model keeps no keys and values.",
    "device": "The CPU is where the fake model is.",
    "cuda_graphs": "The fake model records nothing.",
    "device_map": "There is one device to put layers on.",
    "threads": "Threads are a matter of speed.",
    "wait": "How threads wait is a matter of speed.",
    "async_steps": "When a step is launched is a matter of speed.",
    "memory_check": "The fake model takes no memory to speak of.",
    "max_batch": "The text must not depend on what runs side by side.",
    "trust_remote_code": "The model brings no code that it could allow.",
    "download": "The model is here.",
    "offline": "The model is here.",
    "stream": "Whether text is shown early changes none of it.",
    "grammar_timeout": "Nothing here takes that long.",
    "jump_forward": "Drafts change nothing but the number of forwards.",
    "draft": "Drafts change nothing but the number of forwards, and what is said of them.",
    "draft_tokens": "Drafts change nothing but the number of forwards, and what is said of them.",
    "draft_tree": "Drafts change nothing but the number of forwards, and what is said of them.",
    "draft_min_p": "Drafts change nothing but the number of forwards, and what is said of them.",
    "contrast_beta": "The amateur is the expert, so that there is nothing to contrast.",
    "log": "It keeps what the run is without it.",
    "trace": "It writes to a file of its own.",
    "debug": "It speaks up only when something fails.",
}

# Pairs in which an option that is neutral elsewhere changes the outcome: why.
LOUD = {
    (key, policy): "Other drafts, another text: that is what the policy is."
    for key in ("jump_forward", "draft", "draft_tokens", "draft_min_p")
    for policy in ("verify", "verify_threshold")
}

# Options that are not in the walk: why, and what tries them. The walk has one option of each phase of a chain
# and more; the others that set a field of a stage are represented by those.
_STAGE_WALK = "It sets a field of a stage; tests/processors/stages/test_stage_pairs.py walks all stages."
ELSEWHERE = {
    **{entry.key: _STAGE_WALK for entry in STAGES if entry.key not in FEATURES},
    "watermark_key": "It goes with `watermark`, which is tried with it.",
    "compat": "It is a preset below all others; tests/config/test_compat.py tries every profile.",
    "trace_top": "It goes with `trace`; tests/cli/commands/test_explain.py.",
    "keep_logits": "It goes with `trace`; tests/explain/test_replay.py.",
    "color": "The walk's stdout is no terminal; tests/cli/test_token_views.py.",
    "dola": "The walk's model has no layers; tests/cli/commands/test_run.py.",
    "tp": "One process alone refuses it; tests/models/test_model_memory.py starts two.",
}

# Options beside which others need not show: why.
HIDING = {
    "property_order": "It shows in an object of two properties, where most others have no choice to change.",
    "max_time": "Which token is the last is the clock's affair; here none is generated.",
    "schema_strict": "It refuses this schema, and with it the run.",
    "show_chain": "It generates nothing, so only what is part of the chain could show.",
    "show_prompt": "It generates nothing, so only what is part of the prompt could show.",
}

# Options that end a text, or act on what has been cut, or on what has not: of two, one shows at a time.
# Each has to show with some seed.
ENDING = {
    *("max_tokens", "stop", "stop_id", "stop_regex", "include_stop", "loop", "min_tokens", "ban"),
    *("parsed", "select", "formats", "finish_open", "partial"),
}

# Pairs of which the second option need not show beside the first: why.
_ALIKE = "All prompts in the template end alike, and the fake model sees no more of them."
_FORCED = "The first token is forced, and behind it the fake model knows no prompt."
IDLE = {
    **{(one, other): _ALIKE for one in ("chat", "system") for other in ("guidance", "negative")},
    **{
        (one, other): _FORCED
        for one in ("json", "tool_choice", "grammar_backend", "formats")
        for other in ("guidance", "negative")
    },
    ("guidance", "extra_properties"): _FORCED,
    **{
        ("finish_open", other): "What is cut had no room for any end, so none that could be put off."
        for other in ("min_tokens", "ignore_eos")
    },
    **{
        (other, "property_order"): "Beside it the small object that both are tried with comes out the same."
        for other in (
            "penalty_scope", "logit_bias", "suppress_ids", "contrast", "contrast_alpha", "contrastive_alpha",
            "contrastive_k", "json_schema", "pydantic", "guidance", "negative", "extra_properties",
            "finish_open", "formats", "partial", "retries",
        )
    },
    ("top_k", "contrast"): "Of the best three tokens none is below the cutoff.",
    ("min_p", "contrast"): "What is below the cutoff is below the minimum as well.",
    ("contrast", "contrast_alpha"): "The contrast is tried with this cutoff by itself.",
    ("json_whitespace", "parsed"): "A document without white space is compact already.",
    ("lark", "grammar_backend"): "llguidance is the only back end for Lark; to name it changes nothing.",
}  # fmt: skip
