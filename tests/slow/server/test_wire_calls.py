"""Fields that clients of other servers send, each with a value that asks for something."""

import json

from tests.server.test_wire_calls import check_rows

# What other servers take beside OpenAI's fields, with a value that asks for something.
OTHERS = {
    "applied": r"""
        max_tokens=3 max_completion_tokens=3 n_predict=3 min_tokens=1 top_k=5 min_p=0.1 rep_pen=1.1
        dynatemp_range=0.5 smoothing_factor=1 mirostat=2 mirostat_mode=1 adaptive_target=0.5 skew=1
        top_n_sigma=1 top_a=0.5 typical_p=0.5 tfs=0.5 top_h=0.5 min_k=3
        xtc_probability=0.5 repetition_penalty=1.1 repeat_penalty=1.1
        dry_multiplier=0.8 dry_base=1.5 dry_allowed_length=3 dry_sequence_breakers=["x"] dry_penalty_last_n=64
        dry_range=64 no_repeat_ngram_size=2 encoder_no_repeat_ngram_size=2 encoder_repetition_penalty=1.2
        exponential_decay_length_penalty=[2,1.5] sequence_bias={"ab":1} rep_pen_slope=0.5
        include_stop_str_in_output=true ignore_eos=true
        no_stop_trim=true temperature_last=true stop_token_ids=[2] stop_regex="b" stop_sequence=["x"]
        allowed_token_ids=[97] bad_words=["x"] banned_strings=["x"] banned_tokens=[97]
        custom_token_bans="97" ban_eos_token=true logit_bias={"97":1} samplers=["temperature"] json_schema={}
        regex="a" ebnf="root::=\"a\"" structured_outputs={"choice":["a"]} guided_choice=["a"]
        guided_regex="a" guided_json={} guided_grammar="root::=\"a\"" grammar_string="root::=\"a\""
        regex_pattern="a" guidance_scale=2 cfg_scale=2 seed=5 t_max_predict_ms=9000 cache_salt="x"
        extra_key="x" session_id="x" priority=3 prompt_logprobs=1 return_token_ids=true
        add_special_tokens=false n=2 thinking_token_budget=5 reasoning_budget=0 thinking_budget_tokens=5""",
    "refused": """
        dynamic_temperature=true dynatemp_high=2 repetition_decay=5
        epsilon_cutoff=3 eta_cutoff=3
        sampler_priority=["x"] max_tokens_second=5 session_params={"id":1} return_logprob=true
        logprob_token_ids=[5] return_tokens=true response_fields=["x"] n_probs=5 lora_path="x"
        post_sampling_probs=true truncate_prompt_tokens=1 skip_special_tokens=false response_prefix="x"
        functions=[{}] guided_decoding_backend="x" prompt_lookup_num_tokens=3
        chat_template="x" echo=5 top_kk=1""",
    "idle": """
        typical_p=1 top_n_sigma=-1 top_a=0 xtc_probability=0 xtc_threshold=0.1 dynatemp_range=0 mirostat=0
        mirostat_tau=5 mirostat_eta=0.1 smoothing_curve=1 adaptive_target=-1 skew=0 min_temp=1
        dry_multiplier=0 dry_penalty_last_n=0 dry_base=1.75
        dry_sequence_breakers=["x"] dry_range=0 tfs=1
        epsilon_cutoff=0 no_repeat_ngram_size=0 encoder_repetition_penalty=1 rep_pen_slope=1
        encoder_no_repeat_ngram_size=0 repeat_last_n=64
        repetition_penalty_range=1024 id_slot=-1 cache_prompt=true
        id_slot=2 stream_interval=8 timings_per_token=true return_progress=true sse_ping_interval=3
        truncate_prompt_tokens=5 stream_interval=1 timings_per_token=false return_tokens=false n_probs=0
        skip_special_tokens=true
        user="u" metadata={} negative_prompt="" guidance_scale=1 use_beam_search=false best_of=1
        length_penalty=1 do_sample=true""",
}


def test_fields_of_other_servers_are_applied_or_refused_by_name(fake):
    for kind in OTHERS:
        plain = {"prompt": "ab", "seed": 1, "temperature": 0.9, "max_tokens": 6, "stop_regex": "~~~"}
        for field in OTHERS[kind].split():
            name, _, value = field.partition("=")
            body = {**plain, name: json.loads(value)}
            if "max_" in name or name == "n_predict":
                del body["max_tokens"]
            reply = fake.post("/v1/completions", json=body)
            if kind == "refused":
                error = reply.json()["error"]
                assert (reply.status_code, error["param"]) == (400, name), field
            else:
                assert reply.status_code == 200, (field, reply.text)
            if kind == "idle":
                assert (
                    reply.json()["choices"] == fake.post("/v1/completions", json=plain).json()["choices"]
                ), field


def test_fields_with_an_effect_are_accepted(fake):
    check_rows(fake, "effect", 200)
