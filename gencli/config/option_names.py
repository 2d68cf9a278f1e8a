"""Flags in place of keys in messages; other tools' names of options and commands, for suggestions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING

from processors.errors import close_names, did_you_mean

if TYPE_CHECKING:
    from gencli.config.option import Option

_KEY = re.compile(r"`([a-z]\w*)`( =(?= ))?")


def with_flags(text: str, options: Iterable[Option] = ()) -> str:
    """Return a message of the library as a terminal shows it: option keys in backticks become flags.

    Below gencli.cli a message names an option by its key in backticks. The key is that of the option
    tables, and also the keyword of `LLM` and `SamplingParams` and the key in presets and in rows of a
    batch. A value follows an equals sign between spaces:

        `max_batch`            --max-batch
        `vars`                 --var
        `verify` = rejection   --verify rejection

    Only keys of the tables of `gencli run`, `batch`, `score` and `serve`, and of `options`, are replaced;
    other text in backticks is returned as it is. Errors, notices and advice for a person are shown through
    this function. Records (JSON, YAML, the results of a batch) keep the keys.
    """
    flags = _flags() | {entry.key: entry.flag for entry in options}
    return _KEY.sub(lambda match: flags.get(match[1], match[0]), text)


@cache
def _flags() -> dict[str, str]:
    from gencli.batch.batch_options import OWN, SCORE_OWN
    from gencli.config.run_options import OPTIONS
    from gencli.server.serve_options import OWN as OF_SERVER

    return {entry.key: entry.flag for entry in (*SCORE_OWN, *OPTIONS, *OF_SERVER, *OWN)}


_Names = Mapping[str, str]

# Options by key, with their names in other tools.
OPTION_NAMES: _Names = {
    "model": "model_name model_id model_path model_name_or_path hf_repo hfr hf repo",
    "dtype": "torch_dtype",
    "quantize": "quantization q_bits load_in_8bit load_in_4bit bits",
    "tp": "tensor_parallel tensor_parallel_size tp_size",
    "threads": "num_threads num_thread n_threads cpu_threads threads_batch",
    "async_steps": "async_scheduling overlap_schedule",
    "max_batch": "batch_size num_batch max_num_seqs parallel np n_parallel max_batch_size concurrency",
    "system": "system_prompt system_message sys instructions",
    "chat": "apply_chat_template",
    "raw": "no_conversation no_cnv ignore_chat_template no_chat_template",
    "file": "prompt_file input_file binary_file",
    "preset": "config profile",
    "temperature": "temp",
    "top_k": "topk",
    "top_p": "nucleus topp nucleus_p",
    "repetition_penalty": "repeat_penalty rep_pen rep_penalty token_repetition_penalty",
    "frequency_penalty": "repeat_frequency_penalty freq_penalty freq_pen token_frequency_penalty",
    "presence_penalty": "repeat_presence_penalty pres_penalty presence_pen token_presence_penalty",
    "penalty_window": "repeat_last_n rep_pen_range repetition_context_size presence_context_size "
    "repetition_penalty_range penalty_range",
    "logit_bias": "token_bias bias",
    "allow_ids": "allowed_token_ids allow_tokens allowed_ids",
    "top_n_sigma": "top_nsigma nsigma",
    "no_repeat_ngram": "no_repeat_ngram_size",
    "dry_multiplier": "dry",
    "dry_window": "dry_penalty_last_n dry_range",
    "dry_breaker": "dry_sequence_breaker dry_sequence_breakers",
    "lz": "lz_penalty ngram_penalty",
    "length_decay": "exponential_decay_length_penalty",
    "epsilon": "epsilon_cutoff",
    "eta": "eta_cutoff",
    "dynatemp_min": "dynatemp_low min_temp",
    "dynatemp_max": "dynatemp_high max_temp",
    "dynatemp_exponent": "dynatemp_exp temp_exponent",
    "smoothing": "smoothing_factor",
    "mirostat": "mirostat_mode",
    "mirostat_tau": "mirostat_ent",
    "mirostat_eta": "mirostat_lr",
    "typical": "typical_p typ_p typical_decay typ",
    "tfs": "tfs_z tail_free",
    "xtc_probability": "xtc xtc_prob",
    "xtc_threshold": "xtc_thresh",
    "suppress_ids": "suppress_tokens disallow_tokens banned_ids bad_words_ids",
    "begin_suppress_ids": "begin_suppress_tokens",
    "eos_above": "min_eos_p",
    "reasoning_budget": "thinking_budget thinking_token_budget reasoning_budget_tokens",
    "reasoning_message": "reasoning_budget_message",
    "force_text": "force_prefix trigger_phrase",
    "ban": "bad_words banned_strings banned_tokens custom_token_bans",
    "min_tokens": "min_new_tokens n_min",
    "ignore_eos": "ban_eos_token ban_eos",
    "chain": "samplers sampler_seq sampling_seq sampler_priority sampler_order samplers_priorities",
    "watermark": "watermarking watermarking_config watermark_kind",
    "watermark_key": "hashing_key watermarking_key",
    "sampler": "sampling_method",
    "seed": "sampling_seed sampler_seed random_seed rng_seed",
    "n": "num_return_sequences num_samples n_samples n_cmpl num_sequences",
    "beams": "num_beams beam_width use_beam_search beam_size beam_search",
    "contrastive_alpha": "penalty_alpha contrastive_search",
    "max_tokens": "max_new_tokens n_predict predict num_predict max_completion_tokens max_output_tokens "
    "max_gen_tokens new_tokens",
    "max_time": "timeout time_limit t_max_predict_ms",
    "stop": "stop_strings stop_sequences stop_sequence stop_words reverse_prompt",
    "stop_id": "stop_token_ids eos_token_id stop_ids extra_eos_token stop_tokens",
    "include_stop": "include_stop_str_in_output no_stop_trim",
    "loop": "repetition_detection stop_on_loop",
    "json": "json_object json_mode",
    "json_schema": "schema guided_json json_schema_file response_schema response_format jf",
    "regex": "guided_regex pattern",
    "grammar": "grammar_file guided_grammar gbnf ebnf grammar_string",
    "choice": "guided_choice choices enum",
    "tools": "functions tool tools_file",
    "tool_choice": "function_call",
    "grammar_backend": "guided_decoding_backend structured_outputs_backend",
    "json_whitespace": "whitespace_pattern disable_any_whitespace",
    "guidance": "guidance_scale cfg_scale cfg",
    "dola": "dola_layers",
    "negative": "negative_prompt cfg_negative_prompt negative_prompt_ids",
    "color": "colour colors",
    "at": "token token_index token_position",
    "logprobs": "top_logprobs n_probs output_scores output_logits return_logprob return_logprobs",
    "prompt_logprobs": "echo_logprobs input_logprobs logprob_start_len",
    "draft": "draft_model model_draft md assistant_model speculative_model prompt_lookup lookup",
    "draft_tokens": "draft_max num_speculative_tokens num_draft_tokens num_assistant_tokens draft_n "
    "prompt_lookup_num_tokens",
    "draft_tree": "speculative_token_tree medusa_choices tree_choices eagle_choices",
    "draft_min_p": "draft_p_min assistant_confidence_threshold",
    "output": "output_file out_file",
    "format": "output_format output_type",
    "quiet": "silent log_disable no_log no_perf",
    "stats": "verbose -v show_timings usage perf",
    "prompt_column": "text_column prompt_field input_column",
    "id_column": "id_field key_column",
    "overwrite": "force",
    "workers": "num_workers data_parallel_size dp",
    "kv_memory": "gpu_memory_utilization mem_fraction_static kv_cache_memory",
}

# Options of other tools that gencli lacks, with a sentence about the alternative.
SENTENCES: _Names = {
    "The prompt is no option: it is the argument, a file or what comes through a pipe.": "prompt "
    "-p prompt_text",
    "Every run uses the model's whole context; {max_tokens} limits the output.": "ctx_size -c n_ctx num_ctx "
    "ctx max_model_len context context_size context_length max_kv_size max_seq_len max_length",
    "There is no such stage here; {top_p}, {min_p} and {top_k} cut, and {plugin} adds a stage of your own.":
    "min_keep min_tokens_to_keep",
    "That is a field of a stage: {stage} 'no_repeat_ngram:n=3,scope=prompt'.": "encoder_no_repeat_ngram_size",
    "That is a stage with the inverse: 1.25 there is {stage} 'repetition:penalty=0.8,scope=prompt'.":
    "encoder_repetition_penalty encoder_rep_pen",
    "That is a field of a stage: {stage} 'repetition:penalty=1.1,slope=0.7'.": "rep_pen_slope",
    "That is a field of a stage: {stage} 'repetition:penalty=1.1,sustain=256,decay=128'.":
    "token_repetition_decay token_repetition_range repetition_decay",
    "That is a field of a stage: {stage} 'dry:multiplier=0.8,max_ngram=20'.": "dry_max_ngram",
    "There is no such penalty here; {repetition_penalty}, {frequency_penalty} and {presence_penalty} are, "
    "and {plugin} adds a stage of your own.": "diversity_penalty",
    "The whole model lies on {device}; {device_map} auto spreads it over several.": "n_gpu_layers gpu_layers "
    "ngl num_gpu main_gpu tensor_split split_mode low_cpu_mem_usage gpus gpu",
    "Tokens are forced by the stage force, with {stage}; gencli stages show force has its fields.":
    "forced_bos_token_id forced_eos_token_id",
    "Weights are read as they are stored, in the number format of {dtype}.": "load_format",
    "Keys and values are kept in the number format of {dtype}.": "cache_type_k cache_type_v kv_cache_dtype "
    "kv_bits kv_group_size quantized_kv_start cache_implementation kv_cache_quant",
    "A model is used as its folder has it; merge an adapter into it first.": "lora lora_scaled adapter "
    "adapter_path enable_lora lora_modules control_vector adapters",
    "The tokenizer and the chat template are those of the model's folder.": "tokenizer tokenizer_mode "
    "chat_template chat_template_file jinja default_chat_template chat_template_config",
    "That is done by itself, where the model allows it.": "flash_attn fa attn_implementation "
    "enable_prefix_caching enable_chunked_prefill prompt_cache prompt_cache_all use_cache cont_batching mmap "
    "no_mmap mlock cache_prompt no_warmup warmup skip_special_tokens renormalize_logits",
    "{cuda_graphs} off launches each operation of a step by itself.": "enforce_eager disable_cuda_graph",
    "The output is the answer alone, and progress shows on a terminal by itself; {quiet} turns it off.":
    "progress no_progress progress_bar tqdm display_prompt no_display_prompt echo "
    "return_full_text simple_io nowordwrap",
    "In Python, progress=False draws no bar; {quiet} turns off that of a command.": "use_tqdm disable_tqdm "
    "show_progress",
    "gencli chat talks turn by turn.": "interactive -i interactive_first multiline_input conversation cnv",
    "{constrain_after} says where thinking ends and the answer begins.": "think thinking reasoning "
    "reasoning_format enable_thinking reasoning_effort hidethinking",
    "gencli serve answers over HTTP; other commands need neither address nor key.": "host port api_key "
    "base_url api_base",
    "Models read text alone.": "image images attachment mmproj audio video",
    "{sampler} greedy takes the most likely token in each step; tokens are drawn without it.": "do_sample "
    "greedy",
    "{seed} and the same options give the same text.": "deterministic enable_deterministic_inference "
    "batch_invariant",
}  # fmt: skip

COMMAND_NAMES: _Names = {
    "run": "generate gen complete completion infer predict ask llama-cli",
    "chat": "repl talk conversation interactive",
    "models": "list ls ps pull rm download get model cache",
    "detect": "watermark detector detect_watermark",
    "compare": "diff ab versus vs side-by-side",
    "tokenize": "token tokens tokenise tokenizer encode detokenize",
    "quantize": "quantise convert llama-quantize",
    "batch": "run-batch batches map offline",
    "config": "preset presets settings options templates",
    "stages": "samplers stage plugins plugin processors chain",
    "schema": "schemas json-schema audit",
    "bench": "benchmark benchmarks llama-bench",
    "serve": "server api llama-server start up http",
    "doctor": "info env collect-env diagnose system",
    "completion": "complete-shell autocomplete completions",
    "list": "ls",
    "show": "cat view print get",
    "check": "test validate verify lint",
    "lint": "check validate",
    "diff": "compare",
    "export": "save write dump",
    "--help": "help man usage",
    "--version": "version",
}

SLASH_NAMES: _Names = {
    "quit": "exit bye q end x",
    "help": "? h commands",
    "regen": "retry regenerate again r redo",
    "undo": "back pop rewind",
    "clear": "reset new forget restart",
    "history": "messages log conversation list",
    "show": "settings config options get parameters",
    "set": "parameter param option",
    "save": "export write",
    "load": "import open read resume",
    "stats": "usage timings perf",
    "schema": "format json",
}


def key_of(word: str) -> str:
    """Return the key of the option with this name in another tool; "" if there is none."""
    return _KEY_OF.get(word, "")


def meant_option(word: str, spelled: Mapping[str, str]) -> str:
    """Return a hint for an unknown option name; "" if no option is similar.

    `spelled` maps the key of each option that could be meant to its spelling in the hint, such as
    `{"top_k": "GENCLI_TOP_K"}`.
    """
    name = word if re.fullmatch("-[a-z]", word) else word.strip("-").casefold().replace("-", "_")
    if sentence := _SENTENCE_OF.get(name):
        return re.sub(r"\{(\w+)\}", lambda match: spelled.get(match[1], match[1]), sentence)
    if (key := _KEY_OF.get(name, "")) in spelled:
        return did_you_mean([spelled[key]])
    return did_you_mean([spelled[key] for key in close_names(word, spelled)])


def meant_command(word: str, commands: Iterable[str], aliases: _Names) -> list[str]:
    """Return the commands that an unknown command may mean."""
    commands = list(commands)
    same = [name for name, others in aliases.items() if name in commands and word in others.split()]
    return same or close_names(word, commands)


def inverted(names: _Names) -> dict[str, str]:
    """Return the key of each name of a text of names by key."""
    return {other: key for key, others in names.items() for other in others.split()}


_KEY_OF = inverted(OPTION_NAMES)
_SENTENCE_OF = inverted(SENTENCES)
