"""Settings of other systems as presets: values, units and orders kept, the rest named."""

import json

from gencli.imports.imported_preset import import_settings, read_arguments, read_settings
from processors.registry import builtin_registry


def imported(given, peer=""):
    """The lines of the preset behind its head, and the names that are not taken over."""
    text = json.dumps(given) if isinstance(given, dict) else given
    source = read_arguments(given, peer) if isinstance(given, list) else read_settings(text, peer)
    found = import_settings(source, builtin_registry())
    return found.text.splitlines()[1:], [note.split()[0] for note in found.notes]


def test_settings_keep_their_values_units_and_order():
    for given, peer, lines, left in [
        (
            {"messages": ["hi"], "model": "m", "temperature": 0.7, "stop": ["\n"], "n": 2, "stream": 1,
             "x": 1},
            "openai",
            ["temperature: 0.7", 'stop: ["\\n"]', "n: 2"],
            ["messages", "model", "stream", "x"],
        ),
        ({"temperature": 0.005, "bad_words": ["a"], "top_k": -1, "logit_bias": {"5": 200}}, "vllm",
         ["compat: vllm", "temperature: 0.01", 'ban: ["a"]', "logit_bias: [[5, 100.0]]"], []),
        ({"temperature": 1e-6, "regex": "a"}, "vllm", ["compat: vllm", "temperature: 0.0"], ["regex"]),
        ({"text": "x", "sampling_params": {"temperature": 0.7, "max_new_tokens": 20}}, "sglang",
         ["compat: sglang", "temperature: 0.7", "max_tokens: 20"], ["text"]),
        (["llama-cli", "-m", "x", "--temp", "0.7", "-n", "128", "--repeat-last-n", "-1", "--repeat-penalty",
          "1.1", "-l", "15043+1", "-p", "hi", "--dry-multiplier=0.8", "--dry-sequence-breaker", "none",
          "--dry-sequence-breaker", "\\n"], "llama-cpp",
         ["compat: llama-cpp", "temperature: 0.7", "repetition_penalty: 1.1", "logit_bias: [[15043, 1.0]]",
          "dry_multiplier: 0.8", 'dry_breaker: ["\\n"]', "max_tokens: 128", "stages:",
          "  repetition: {window: null}"], ["model", "prompt"]),
        (["llama-cli", "--samplers", "min_p;temperature;nope", "--top-k", "5"], "llama-cpp",
         ["compat: llama-cpp", "top_k: 0", "top_p: 1.0"], ["nope", "top_k"]),
        (["llama-cli", "--sampler-seq", "tk", "--top-k", "5"], "llama-cpp",
         ["compat: llama-cpp", "top_k: 5", "top_p: 1.0", "min_p: 0.0",
          "chain: [bias, temperature, dynamic_temperature, top_k]"], []),
        (["llama-cli", "--mirostat", "1", "--mirostat-ent", "4", "--top-k", "5"], "llama-cpp",
         ["compat: llama-cpp-mirostat", "mirostat: 1", "mirostat_tau: 4.0"], ["top_k"]),
        ("temperature: 1.2\nxtc_probability: 0.5\nepsilon_cutoff: 3\nrepetition_penalty: 1.1\n"
         "repetition_penalty_range: 512\n", "tgw",
         ["compat: tgw", "temperature: 1.2", "xtc_probability: 0.5", "epsilon: 0.0003",
          "repetition_penalty: 1.1", "stages:", "  repetition: {window: 512}"], []),
        ("do_sample: false\ntop_k: 4\npenalty_alpha: 0.6\n", "tgw",
         ["compat: tgw", "temperature: 0.0", "contrastive_alpha: 0.6", "contrastive_k: 4"], []),
        ("top_k: 4\npenalty_alpha: 0.6\n", "tgw", ["compat: tgw", "top_k: 4"], ["penalty_alpha"]),
        ("do_sample: false\npenalty_alpha: 0.6\n", "tgw", ["compat: tgw", "temperature: 0.0"],
         ["penalty_alpha"]),
        ({"do_sample": False, "top_k": 4, "penalty_alpha": 7, "transformers_version": "4"}, "hf",
         ["compat: hf", "top_k: 4", "temperature: 0.0"], ["transformers_version", "penalty_alpha"]),
        ("temperature: 0.9\ntemperature_last: true\n", "tgw",
         ["compat: tgw", "temperature: 0.9", "temperature_last: true"], []),
        ({"rep_pen": 1.07, "rep_pen_range": 2048, "rep_pen_slope": 0.7,
          "sampler_order": [6, 0, 1, 3, 4, 2, 5], "max_length": 200, "banned_tokens": ["a b"], "prompt": "x"},
         "koboldcpp",
         ["compat: koboldcpp", "repetition_penalty: 1.07", 'ban: ["a b"]', "max_tokens: 200", "stages:",
          "  repetition: {window: 2048, slope: 0.7}"], ["prompt"]),
        ({"temp": 1.5, "min_p": 0.1, "rep_pen": 1, "rep_pen_range": 0, "dynatemp": False, "min_temp": 0,
          "max_temp": 2, "dry_multiplier": 0, "dry_sequence_breakers": '["\\n", ":"]', "do_sample": True,
          "num_beams": 1, "samplers": ["top_k"], "xtc_threshold": 0.1, "mirostat_tau": 5}, "sillytavern",
         ["compat: tgw", "temperature: 1.5", "min_p: 0.1"], ["samplers", "dry_sequence_breakers"]),
        ({"do_sample": True, "temperature": 0.6, "typical_p": 0.95, "no_repeat_ngram_size": 3,
          "exponential_decay_length_penalty": [10, 1.1], "transformers_version": "5", "max_length": 9}, "hf",
         ["compat: hf", "temperature: 0.6", "typical: 0.95", "no_repeat_ngram: 3", "length_decay: [10, 1.1]"],
         ["transformers_version", "max_length"]),
        (["mlx_lm.generate", "--temp", "0.7", "--top-p", "0", "--max-tokens", "50"], "mlx",
         ["compat: mlx", "temperature: 0.7", "max_tokens: 50"], []),
        ("temperature:\n  override: 0.005\npenalty_range:\n  override: 256\nrepetition_decay:\n  override: 9",
         "exl2",
         ["compat: exl2", "temperature: 0.0", "stages:", "  repetition: {decay: 9, sustain: 256}"], []),
        ({"min_temp": 0.5, "max_temp": 1.5, "temperature": 0.9}, "exl2",
         ["compat: exl2", "temperature: 1.0", "dynatemp_min: 0.5", "dynatemp_max: 1.5"], ["temperature"]),
    ]:  # fmt: skip
        assert imported(given, peer) == (lines, left), given
