"""gencli as a model of lm-evaluation-harness (the package lm-eval, which is not installed with gencli).

    from lm_eval import simple_evaluate
    from gencli.lm_eval import GencliLM
    simple_evaluate(model=GencliLM("tiny"), tasks=["my_task"])

`python -m gencli.lm_eval` is lm-eval's own command line, which finds this model by the name `gencli`;
docs/score.md has an example.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from gencli.config.job import PARAM_KEYS, SamplingParams
from gencli.errors import UsageError
from gencli.runtime.llm import LLM
from gencli.scoring.scorer import TextScorer, make_convention
from gencli.scoring.text_scores import cut_window, encoded, prefix_id, text_windows
from gencli.templates.chat_templates import render_conversation

try:
    from lm_eval.api.model import TemplateLM
except ImportError as error:
    raise UsageError("lm-evaluation-harness is not installed.", hint="pip install lm-eval") from error

__all__ = ["GencliLM"]

# Names of generation arguments in tasks, and their names in gencli.
_RENAMED = {"until": "stop", "max_gen_toks": "max_tokens", "max_new_tokens": "max_tokens"}


class GencliLM(TemplateLM):  # type: ignore[misc]
    """A model of gencli for lm-evaluation-harness.

    `pretrained`: the model, named as for `gencli run`. `max_length`: tokens read at once, by default the
    model's context. `options`: options of LLM (dtype, device, max_batch, ...) and of SamplingParams; the
    latter apply to generation, so that a whole chain can be evaluated. Options of a task take precedence.
    Raises UsageError for an unknown option.
    """

    def __init__(
        self,
        pretrained: str = "tiny",
        *,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        **options: Any,
    ) -> None:
        super().__init__()
        options = {key: value for key, value in options.items() if value is not None}
        options.pop("max_batch_size", None)
        size = str(options.pop("batch_size", ""))  # of the harness; it may be a word such as auto
        if size.isdigit() and int(size) > 1:
            options.setdefault("max_batch", int(size))
        params = {key: value for key, value in options.items() if key in PARAM_KEYS}
        self.llm = LLM(pretrained, **{key: value for key, value in options.items() if key not in params})
        self._params = SamplingParams(**params)
        self.max_gen_toks, self._spec = max_gen_toks, self.llm.spec
        self._convention = make_convention(
            "lm-eval", self._spec, self.llm.tokenizer, window=max_length, stride=None
        )
        self._scorer = TextScorer(self.llm.engine, self._spec, self.llm.tokenizer, self._convention)

    @classmethod
    def create_from_arg_obj(
        cls, arg_dict: dict[str, Any], additional_config: dict[str, Any] | None = None
    ) -> GencliLM:
        """Return the model for the harness's arguments; arguments of the model take precedence.

        The harness's command line passes the device cuda:0 if none is given. If PyTorch sees no GPU, this
        value is dropped, as in the harness's own backend.
        """
        options = {**(additional_config or {}), **arg_dict}
        if "device" not in arg_dict and options.get("device") == "cuda:0" and not torch.cuda.is_available():
            del options["device"]
        return cls(**options)

    @property
    def max_length(self) -> int:
        """Number of tokens read at once."""
        return self._convention.window

    @property
    def eot_token_id(self) -> int:
        """An end-of-text id, or the prefix token of a model without one."""
        return next(iter((*self.llm.tokenizer.eos_ids, *self._spec.eos_ids)), self.prefix_token_id)

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without context: BOS, else EOS."""
        return prefix_id(self.llm.tokenizer, self._spec.eos_ids)

    @property
    def tokenizer_name(self) -> str:
        """The name of the tokenizer, for the harness's caches."""
        return self.llm.tokenizer.name

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **_: Any) -> list[int]:
        """Return the ids of a text; by default with the tokenizer's special tokens, at most one BOS."""
        if add_special_tokens is not None:
            return self.llm.tokenizer.encode(string, special=add_special_tokens)
        return encoded(string, self.llm.tokenizer, self.prefix_token_id)

    def apply_chat_template(
        self, chat_history: Sequence[Mapping[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Return the conversation in the model's template; otherwise the last message is to be continued."""
        if add_generation_prompt:
            return render_conversation(self.llm.tokenizer, list(map(dict, chat_history)))
        *before, last = map(dict, chat_history)
        return render_conversation(self.llm.tokenizer, before) + last["content"]

    def _loglikelihood_tokens(
        self, requests: Sequence[tuple[Any, list[int], list[int]]], **_: Any
    ) -> list[tuple[float, bool]]:
        """Return the log-probability of each continuation, and whether every token is the most likely one."""
        windows = [cut_window(context, more, self.max_length) for _, context, more in requests]
        return [
            (math.fsum(entry.chosen.logprob for entry in entries), all(entry.rank == 1 for entry in entries))
            for entries in self._scorer.window_entries(windows)
        ]

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return the log-probability of each text, in disjoint windows."""
        texts = (self.tok_encode(request.args[0]) for request in requests)
        parts = [[*text_windows(ids, self._convention, self.prefix_token_id)] for ids in texts]
        entries = iter(self._scorer.window_entries([window for part in parts for window in part]))
        return [math.fsum(entry.chosen.logprob for _ in part for entry in next(entries)) for part in parts]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return the generated texts; a prompt that leaves no room for one loses its beginning."""
        params_of_texts, prompts = list[SamplingParams](), list[tuple[int, ...]]()
        for request in requests:
            text, arguments = request.args
            params = self._params.replaced(**_generation(arguments, self.max_gen_toks, self._params))
            room = max(1, self.max_length - params["max_tokens"])
            params_of_texts.append(params)
            prompts.append(tuple(self.tok_encode(text))[-room:])
        completions = self.llm.generate_from_ids(prompts, params_of_texts)
        for completion in completions:
            if completion.error is not None:
                raise UsageError(f"A text could not be generated: {completion.error}")
        return [completion.text for completion in completions]


def _generation(task: Mapping[str, Any], max_tokens: int, base: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a task's generation arguments. Without `do_sample` the draw is greedy."""
    arguments = dict(task)
    is_drawn = arguments.pop("do_sample", None)
    options = {_RENAMED.get(key, key): value for key, value in arguments.items() if value is not None}
    if isinstance(options.get("stop"), str):
        options["stop"] = [options["stop"]]
    options["stop"] = [text for text in options.get("stop", ()) if text] or None
    if is_drawn is False or (is_drawn is None and "temperature" not in {**base, **options}):
        options["temperature"] = 0
    options.setdefault("max_tokens", base.get("max_tokens", max_tokens))
    return options


def _main() -> None:
    """Run the harness's command line with the model `gencli` registered."""
    from lm_eval.__main__ import cli_evaluate
    from lm_eval.api.registry import register_model

    register_model("gencli")(GencliLM)
    cli_evaluate()


if __name__ == "__main__":
    _main()
