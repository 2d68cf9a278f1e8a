"""What each option of `gencli run` is tried with in the walk over all pairs, and why some show no mark.

`option_walk` runs them.
"""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Feature:
    """An option's crafted use: `own` are its arguments, `setup` what it needs to have something to act on.

    Both map a flag to its values; None is a switch.
    """

    own: dict[str, tuple[str, ...] | None]
    setup: dict[str, tuple[str, ...] | None]


def feature(own, **setup):
    return Feature(own, {f"--{name.replace('_', '-')}": value for name, value in setup.items()})


PLUGIN = Path(__file__).parent.parent / "examples" / "plugin_minimal" / "gencli_max_run.py"
IDS = "1,6,97,98,99,100,101,102,103,104,105,257"  # a to i, and the ids that end a text
# With letters that the prompt lacks, so that a penalty's scope shows.
LETTERS = {"allow_ids": (IDS + ",109,110",)}
# Behind one of f, g and h there has to be a z, which no run allows: some texts fail.
REGEX = "[a-ei-p][a-ei-p][a-ei-p][a-ei-p][a-ei-p][a-ei-p]+([a-e]|[f-h]z)"
# The fake model likes an f behind the prompt.
CHOICES = tuple(
    "f fbbbb fbbbe fbbeb fbbee fbebb fbebe fbeeb fbeee febbb febbe febeb febee feebb feebe feeeb feeee "
    "fbebebebebebebe feeeeeeeeee febbaebbaebba fba fc fd fg fh fi b bc c d e g h".split()
)
# What JSON is written with, and what lets a text show that is cut.
JSON_IDS = ",".join(map(str, (10, 32, *b'{}[]":,-/', *b"0123456789", *b"abcdefghimnoprsuy", 257)))
# With these, most strings are no regular expressions.
BRACKETS = "10,32,34,40,44,91,93,97,98,99,100,101,257"
JSON = {"allow_ids": (JSON_IDS,), "partial": None}
# Its first character is a choice, its letters are those that are banned and biased, its format is
# something that only the check knows.
SCHEMA = """{"anyOf": [
    {"type": "array", "minItems": 1, "items":
        {"type": "string", "format": "regex", "minLength": 1, "maxLength": 3}},
    {"type": "object", "properties": {"a": {"enum": [1, 2]}}}
]}"""

FEATURES = {
    "temperature": feature({"--temperature": ("0.3",)}),
    "top_k": feature({"--top-k": ("5",)}),
    "top_p": feature({"--top-p": ("0.8",)}),
    "min_p": feature({"--min-p": ("0.3",)}),
    "repetition_penalty": feature({"--repetition-penalty": ("1.5",)}),
    "frequency_penalty": feature({"--frequency-penalty": ("3",)}),
    "presence_penalty": feature({"--presence-penalty": ("3",)}),
    "penalty_scope": feature({"--penalty-scope": ("output",)}, repetition_penalty=("3",)),
    "penalty_window": feature({"--penalty-window": ("2",)}, repetition_penalty=("3",)),
    "logit_bias": feature({"--logit-bias": ("97=3", "98=3")}),
    "allow_ids": feature({"--allow-ids": ("1,6,97,98,99,100,102,103,104,105,109,110,257",)}),
    "suppress_ids": feature({"--suppress-ids": ("99,100",)}),
    "ban": feature({"--ban": ("a", "bc")}),
    "min_tokens": feature({"--min-tokens": ("12",)}, stop_regex=("[a-c]",)),
    "ignore_eos": feature({"--ignore-eos": None}),
    "stage": feature({"--stage": ("bias=[[98,3]]",)}),
    # In one word, so that it stands beside the values of the option --stage.
    "plugin": feature({"--plugin": (str(PLUGIN),), "--stage=max_run=1": None}),
    "chain": feature(
        {"--chain": ("adjust,top_k,top_p,min_p,temperature",)}, temperature=("2",), top_p=("0.7",)
    ),
    "temperature_last": feature({"--temperature-last": None}, temperature=("2",), top_p=("0.7",)),
    "sampler": feature({"--sampler": ("multinomial",)}),
    "seed": feature({"--seed": ("77",)}),
    "n": feature({"-n": ("2",)}),
    "max_tokens": feature({"--max-tokens": ("5",)}),
    "max_time": feature({"--max-time": ("0.000001",)}),
    "stop": feature({"--stop": ("ab", "d", "e")}),
    "stop_id": feature({"--stop-id": ("101", "105")}),
    "stop_regex": feature({"--stop-regex": ("[gh]",)}),
    "include_stop": feature({"--include-stop": None}, stop=("ab", "c")),
    "loop": feature({"--loop": ("2",)}),
    "json": feature({"--json": None}, format=("json",), **JSON),
    "json_schema": feature({"--json-schema": (SCHEMA,)}, **JSON),
    "pydantic": feature({"--pydantic": ("walked_model:Digits",)}, **JSON),
    "regex": feature({"--regex": (REGEX,)}, **LETTERS),
    "grammar": feature({"--grammar": ('root ::= [a-p] [a-p] ([a-p] "b"?)+',)}, **LETTERS),
    "lark": feature({"--lark": ("start: /[a-p][a-p][a-p]+/",)}, **LETTERS),
    "choice": feature({"--choice": CHOICES}, **LETTERS),
    "structural_tag": feature({"--structural-tag": ("tag.json",)}, **LETTERS),
    "tools": feature({"--tools": ("tools.json",)}, **JSON),
    "tool_choice": feature({"--tool-choice": ("required",)}, tools=("tools.json",), **JSON),
    "constrain_after": feature({"--constrain-after": ("a",)}, regex=(REGEX,), **LETTERS),
    "grammar_backend": feature({"--grammar-backend": ("llguidance",)}, json_schema=(SCHEMA,), **JSON),
    "grammar_timeout": feature({"--grammar-timeout": ("60",)}, regex=(REGEX,), **LETTERS),
    "schema_strict": feature({"--schema-strict": None}, json_schema=(SCHEMA,), **JSON),
    "extra_properties": feature({"--extra-properties": None}, json_schema=(SCHEMA,), **JSON),
    "json_whitespace": feature({"--json-whitespace": ("0",)}, json_schema=(SCHEMA,), **JSON),
    "formats": feature({"--formats": None}, json_schema=(SCHEMA,), partial=None, allow_ids=(BRACKETS,)),
    "partial": feature({"--partial": None}, json_schema=(SCHEMA,), formats=None, allow_ids=(BRACKETS,)),
    "retries": feature({"--retries": ("2",)}, regex=(REGEX,), **LETTERS),
    "jump_forward": feature({"--jump-forward": ("off",)}, regex=(REGEX,), **LETTERS),
    "finish_open": feature({"--finish-open": None}, regex=(REGEX,), max_tokens=("4",), **LETTERS),
    "parsed": feature({"--parsed": None}, json_schema=(SCHEMA,), **JSON),
    "select": feature({"--select": ("/0",)}, json_schema=(SCHEMA,), **JSON),
    "preset": feature({"--preset": ("./preset.yaml",)}),
    # Text shows only a prompt's last token, which a template decides; JSON has the prompt and its length.
    "file": feature({"--file": ("prompt.txt",)}, format=("json",)),
    "chat": feature({"--chat": None}),
    "system": feature({"--system": ("You tell sad stories.",)}, chat=None, format=("json",)),
    "format": feature({"--format": ("jsonl",)}),
    "output": feature({"--output": ("out.txt",)}),
    "quiet": feature({"--quiet": None}),
    "stats": feature({"--stats": None}),
    "show_chain": feature({"--show-chain": None}),
    "raw": feature({"--raw": None}),
    "model": feature({"--model": ("fake",)}),
    "dtype": feature({"--dtype": ("float32",)}),
    "device": feature({"--device": ("cpu",)}),
    "threads": feature({"--threads": ("1",)}),
    "max_batch": feature({"--max-batch": ("1",)}),
    "trust_remote_code": feature({"--trust-remote-code": None}),
    "stream": feature({"--no-stream": None}),
    "debug": feature({"--debug": None}),
}

# Options that must change nothing in the outcome of any other; the walk checks just that.
NEUTRAL = {
    "raw": "It spells out the default.",
    "model": "The walk names the model that every run has anyway.",
    "dtype": "float32 is what the fake model computes in.",
    "device": "The CPU is where the fake model is.",
    "threads": "Threads are a matter of speed.",
    "max_batch": "The text must not depend on what runs side by side.",
    "trust_remote_code": "The model brings no code that it could allow.",
    "stream": "Whether text is shown early changes none of it.",
    "grammar_timeout": "Nothing here takes that long.",
    "jump_forward": "Drafts change nothing but the number of forwards.",
    "debug": "It speaks up only when something fails.",
}

# Options beside which others need not show: why.
HIDING = {
    "max_time": "Which token is the last is the clock's affair; here none is generated.",
    "tool_choice": "The call that it requires is longer than these runs may be, so others seldom show.",
    "finish_open": "It acts where a text is cut early, before others matter.",
    "schema_strict": "It refuses this schema, and with it the run.",
    "show_chain": "It generates nothing, so only what is part of the chain could show.",
}

# Options that end a text: of two, the one that is met first shows. Each has to show with some seed.
ENDING = {"max_tokens", "stop", "stop_id", "stop_regex", "include_stop", "loop", "min_tokens", "ban"}
