"""The table of all options of a run: names, type, help, bounds, default, and the stage that they set.

The command line, its help, docs/cli.md, environment variables and presets are made from this table. An
option of a stage's field has the help, bounds and default of the stage's declaration.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from gencli.config.options.compat import COMPAT
from gencli.config.options.drafts import DRAFTS
from gencli.config.options.guidance import GUIDANCE
from gencli.config.options.option import (
    MAX_BATCH,
    MAX_SAMPLES,
    MAX_SECONDS,
    SECTIONS,
    Option,
    Section,
    read_pairs,
)
from gencli.config.options.search import SEARCH
from gencli.config.options.stages import STAGES, read_texts
from gencli.config.options.structure import STRUCTURE
from gencli.config.options.watermark import WATERMARK
from gencli.errors import UsageError
from processors.catalog import Draw
from processors.conversion import Bounds
from processors.params import MOST

__all__ = [
    "OPTIONS",
    "PENALTY_OPTIONS",
    "SECTIONS",
    "Option",
    "option",
]

_LIMITS: Section = "Limits and stops"


def _read_order(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return names from "penalties,temperature" or a list. Raises UsageError."""
    parts = given.split(",") if isinstance(given, str) else given
    names = tuple(part.strip() for part in parts)
    for name in names:
        if not name.replace("_", "").isalnum():
            raise UsageError(f"{name!r} is not a stage.", hint="It is the order alone; values go to `stage`.")
    return names


_PROMPT: tuple[Option, ...] = (
    Option(("--file", "-f"), str, "Read the prompt from this file; one newline at its end is dropped.",
           "Prompt", (), many=True, metavar="FILE", flag_only="a prompt belongs to one run"),
    Option(("--chat",), bool, "Put the prompt into the model's chat template.", "Prompt", False),
    Option(("--raw",), bool, "Give the model the prompt as it is (the default).", "Prompt", False),
    Option(("--system",), str, "System message of the chat template.", "Prompt", metavar="TEXT"),
    Option(("--template",), str, "Render the prompt with a Jinja template: a name in a folder of templates, "
           "a file, or the text. Its variables are prompt, stdin and those of `vars`; in a batch, the "
           "columns.", "Prompt", metavar="NAME|FILE|TEXT"),
    Option(("--var",), tuple[str, str], "Set a variable of the template.", "Prompt", (),
           many=True, read=read_pairs, metavar="NAME=TEXT", key_name="vars"),
)  # fmt: skip

_PRESETS: tuple[Option, ...] = (
    Option(("--preset",), str, "Values from a preset: a name (see gencli config list) or a file, as in "
           "./mine.yaml. A later one wins.", "Presets", (), many=True, metavar="NAME",
           flag_only="a preset builds on others with extends"),
)  # fmt: skip

_MODEL: tuple[Option, ...] = (
    Option(("--model", "-m"), str, "A model folder, a GGUF file, an alias, or a name of the hub, as in "
           "org/name, org/name@revision or org/name:Q4_0. tiny, tiny-draft and fake come with gencli.",
           "Model", "tiny", metavar="NAME"),
    Option(("--download",), bool, "Download a missing model of the hub without asking. On a terminal it is "
           "downloaded anyway, from 10 GB on after a question.", "Model", False,
           flag_only="a file must not be able to use the network"),
    Option(("--offline",), bool, "Download nothing.", "Model", False,
           flag_only="it is about the machine, not about a run"),
    Option(("--dtype",), Literal["auto", "float32", "bfloat16", "float16"],
           "Number format of the weights.", "Model", "auto"),
    Option(("--backend",), Literal["auto", "native", "transformers"], "What runs the model: gencli's own "
           "decoder, or transformers. auto takes the decoder for every model that it knows in full.",
           "Model", "auto"),
    Option(("--quantize",), Literal["none", "int8", "int4"], "Round weights to 8 or 4 bits when they are "
           "loaded, for gencli's own decoder on a CPU or an NVIDIA GPU.", "Model", "none"),
    Option(("--kernel",), Literal["auto", "plain", "packed", "row-packed", "fixed"], "Matrix products of the "
           "decoder: with weights as they are, packed for the CPU, packed for a single text, or with one "
           "order of sums on a GPU. auto takes what is fastest on this machine; gencli doctor shows the "
           "times.", "Model", "auto"),
    Option(("--invariant",), Literal["auto", "on", "off"], "Whether the bits of a text must not depend on "
           "what is computed beside it. auto: if that makes a step at most 5 % longer.", "Model", "auto"),
    Option(("--kv-dtype",), Literal["auto", "float32", "bfloat16", "float16", "fp8", "int8"], "Number "
           "format of keys and values in memory, for the decoder; auto is that of the computations. fp8 and "
           "int8 take a quarter of float32; int8, with a scale for each token and head, is the closer one.",
           "Model", "auto"),
    Option(("--device",), str, "auto, cpu, cuda, cuda:N or mps.", "Model", "auto", metavar="DEVICE"),
    Option(("--cuda-graphs",), Literal["auto", "on", "off"], "Whether decode steps on a CUDA GPU are "
           "recorded, each to be launched as a whole. auto: where the model allows it.", "Model", "auto"),
    Option(("--device-map",), Literal["auto"], "Spread the layers over all devices, for a model that is "
           "too large for one; needs accelerate.", "Model"),
    Option(("--tp",), int, "Split each layer over this many processes, which torchrun --nproc-per-node N -m "
           "gencli starts.", "Model", bounds=Bounds(ge=2, le=1024)),
    Option(("--threads",), int, "CPU threads; by default PyTorch decides.", "Model",
           bounds=Bounds(ge=1, le=1024)),
    Option(("--wait",), Literal["auto", "spin", "sleep"], "How CPU threads wait for each other: spinning is "
           "faster on a quiet machine, sleeping on one whose cores others use; auto looks which it is.",
           "Model", "auto"),
    Option(("--max-batch",), int, "Samples that run at once.", "Model", 8,
           Bounds(ge=1, le=MAX_BATCH)),
    Option(("--async/--no-async",), bool, "Launch each step on a GPU before the last one has been read, so "
           "that the GPU does not wait for the host. What is computed beside a text may change, as with "
           "another `max_batch`. By default it is on where the GPU and the model allow it.", "Model",
           key_name="async_steps"),
    Option(("--memory-check",), Literal["on", "off"], "Refuse a model that does not fit into the free "
           "memory before it is loaded; off tries.", "Model", "on"),
    Option(("--trust-remote-code",), bool, "Run Python code that comes with the model.", "Model", False,
           flag_only="a file must not be able to run code"),
)  # fmt: skip

_CHAIN: tuple[Option, ...] = (
    Option(("--stage",), str, "Any stage: name, name=value or name:key=value,key=value.", "Chain", (),
           many=True, metavar="STAGE", flag_only="stages go under stages: or chain:"),
    Option(("--plugin",), str, "Add your own stage: path.py, path.py:Class or module:Class.",
           "Chain", (), many=True, metavar="PLUGIN",
           flag_only="a file must not be able to run code"),
    Option(("--chain",), str, "Order of the stages, as in penalties,temperature,min_p,top_k: stages, "
           "phases, or penalties for all three.", "Chain", (), read=_read_order, metavar="STAGES"),
    Option(("--temperature-last",), bool, "Apply the temperature as the last stage before sampling.",
           "Chain", False),
)  # fmt: skip

_DRAW: tuple[Option, ...] = (
    Option(("--sampler",), Draw, "The method of sampling a token.", "Draw", "gumbel"),
    Option(("--seed",), int, "The seed; equal seeds give equal texts. By default one is chosen and printed.",
           "Draw", bounds=Bounds(ge=0, le=2**64 - 1)),
    Option(("-n",), int, "Samples for each prompt.", "Draw", 1, Bounds(ge=1, le=MAX_SAMPLES)),
    Option(("--logprobs",), int, "Give the log-probability of each output token, under the model and after "
           "the stages, and those of this many alternatives: in JSON, or as text on stderr.", "Draw",
           bounds=Bounds(ge=0, le=MOST)),
    Option(("--prompt-logprobs",), int, "The same for the tokens of the prompt.", "Draw",
           bounds=Bounds(ge=0, le=MOST)),
)  # fmt: skip

_STOPS: tuple[Option, ...] = (
    Option(("--max-tokens",), int, "At most this many output tokens; 0, with `prompt_logprobs`, only scores "
           "the prompt.", _LIMITS, 512, Bounds(ge=0, le=MOST)),
    Option(("--max-time",), float, "At most this many seconds for each prompt.", _LIMITS,
           bounds=Bounds(gt=0, le=MAX_SECONDS)),
    Option(("--stop",), str, r"End before this text. C escapes are read: \n is a newline, \\n is \n itself.",
           _LIMITS, (), many=True, read=read_texts, metavar="TEXT"),
    Option(("--stop-id",), int, "End at this token id.", _LIMITS, (), Bounds(ge=0, le=MOST),
           many=True),
    Option(("--stop-regex",), str, "End before a match of this regular expression.", _LIMITS, (),
           many=True, metavar="REGEX"),
    Option(("--include-stop",), bool, "Keep the matched stop in the text.", _LIMITS, False),
    Option(("--loop",), int, "End when the text repeats itself this many times in a row; 0 is off.",
           _LIMITS, 0, Bounds(ge=0, le=MOST)),
)  # fmt: skip

_OUTPUT: tuple[Option, ...] = (
    Option(("--format",), Literal["text", "json", "jsonl", "yaml"], "Format of the result; by "
           "default that of the suffix of `output`, unless the output is a JSON document.", "Output", "text"),
    Option(("--output", "-o"), str, "Write the result to this file.", "Output", metavar="FILE",
           flag_only="a preset must not be able to write over a file"),
    Option(("--token-ids",), bool, "Add the token ids of the prompt and of the output to the records of "
           "`format` = json, jsonl or yaml, stops included.", "Output", False),
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
    Option(("--log/--no-log",), bool, "Record the run in the log, which gencli log lists; off by "
           "default.", "Output", False),
    Option(("--show-chain",), bool, "Print each stage with its values and their origins; generate nothing.",
           "Output", False, flag_only="it asks a question and is no part of a run"),
    Option(("--show-prompt",), bool, "Print the prompt as the model gets it, special tokens included; "
           "generate nothing.", "Output", False, flag_only="it asks a question and is no part of a run"),
    Option(("--debug",), bool, "Show the traceback of an error, and the messages of libraries.",
           "Output", False, flag_only="it is for finding a fault in one run"),
)  # fmt: skip

OPTIONS: tuple[Option, ...] = (
    *_PROMPT, *_PRESETS, *COMPAT, *_MODEL, *STAGES, *_CHAIN, *WATERMARK, *GUIDANCE, *_DRAW, *SEARCH, *_STOPS,
    *STRUCTURE, *DRAFTS, *_OUTPUT,
)  # fmt: skip
PENALTY_OPTIONS: tuple[Option, ...] = tuple(o for o in OPTIONS if o.field and not o.stage)
_BY_KEY = {entry.key: entry for entry in OPTIONS}


def option(key: str) -> Option:
    """Return the option with this key."""
    return _BY_KEY[key]
