"""transformers, tests/generation/test_logits_process.py (Apache-2.0)."""

from tests.processors.vectors.case import Case, logs

_FILE = "transformers tests/generation/test_logits_process.py"
_RAMP, _SHIFTED = tuple(map(float, range(10))), (10.0, 11.0, 12.0, 13.0, 14.0, 5.0, 6.0, 7.0, 8.0, 9.0)
_LOW, _STEEP = tuple(float(x) for x in range(-5, 5)), tuple(100.0 * x for x in range(-5, 5))
_FLAT, _PEAKED = (0.2,) * 5, logs(0.97, 0.01, 0.01, 0.01)
_TWO, _THREE = (8, 9), (7, 8, 9)

TRUNCATION = (
    Case(f"{_FILE} test_top_k_dist_warper", "top_k=3", _RAMP, kept=_THREE),
    Case(f"{_FILE} test_top_k_dist_warper", "top_k=3", _SHIFTED, kept=(2, 3, 4)),
    Case(f"{_FILE} test_top_k_dist_warper", "top_k:k=1,keep=3,ties=keep", _FLAT, kept=(0, 1, 2, 3, 4)),
    Case(
        f"{_FILE} test_top_k_dist_warper",
        "top_k:k=1,keep=3",
        _FLAT,
        kept=(0, 1, 2, 3, 4),
        differs="[5]: of ties the lowest ids stay",
    ),
    Case(f"{_FILE} test_top_k_dist_warper", "top_k:k=1,keep=3", _RAMP[:5], kept=(2, 3, 4)),
    Case(f"{_FILE} test_top_p_dist_warper", "top_p=0.8", logs(0.3, 0.1, 0.1, 0.5), kept=(0, 3)),
    Case(f"{_FILE} test_top_p_dist_warper", "top_p=0.8", logs(0.15, 0.3, 0.3, 0.25), kept=(1, 2, 3)),
    Case(f"{_FILE} test_top_p_dist_warper", "top_p:p=0.9,keep=2", _LOW, kept=_THREE),
    Case(f"{_FILE} test_top_p_dist_warper", "top_p:p=0.9,keep=2", _STEEP, kept=_TWO),
    Case(f"{_FILE} test_top_h_dist_warper", "top_h=0.3", _PEAKED, kept=(0,)),
    Case(f"{_FILE} test_top_h_dist_warper", "top_h=0.7", logs(0.4, 0.3, 0.2, 0.1), kept=(0, 1)),
    Case(f"{_FILE} test_top_h_dist_warper", "top_h=1", logs(*(0.25,) * 4), kept=(0, 1, 2, 3)),
    Case(f"{_FILE} test_top_h_dist_warper", "top_h=0.4", logs(0.75, 0.25, 0, 0), kept=(0,)),
    Case(f"{_FILE} test_min_p_dist_warper", "min_p=0.05", logs(0.9, 0.0274, 0.047, 0.0274), kept=(0, 2)),
    Case(f"{_FILE} test_min_p_dist_warper", "min_p=0.05", logs(0.15, 0.3, 0.3, 0.25), kept=(0, 1, 2, 3)),
    Case(f"{_FILE} test_min_p_dist_warper", "min_p=0.05", _PEAKED, kept=(0,)),
    Case(f"{_FILE} test_min_p_dist_warper", "min_p:p=0.9,keep=2", _LOW, kept=_TWO),
    Case(f"{_FILE} test_min_p_dist_warper", "min_p:p=0.9,keep=2", _STEEP, kept=_TWO),
    Case(f"{_FILE} test_typical_dist_warper", "typical=0.5", _PEAKED, kept=(0,)),
    Case(f"{_FILE} test_typical_dist_warper", "typical=0.5", logs(0.4, 0.2, 0.2, 0.2), kept=(1, 2, 3)),
    Case(f"{_FILE} test_typical_dist_warper", "typical:p=0.5,keep=3,ties=keep", _FLAT, kept=(0, 1, 2, 3, 4)),
    Case(
        f"{_FILE} test_typical_dist_warper",
        "typical:p=0.5,keep=3",
        _FLAT,
        kept=(0, 1, 2, 3, 4),
        differs="[12]: of ties the lowest ids stay",
    ),
    Case(f"{_FILE} test_typical_dist_warper", "typical:p=0.7,keep=2", _LOW, kept=_TWO),
    Case(f"{_FILE} test_typical_dist_warper", "typical:p=0.7,keep=2", _STEEP, kept=_TWO),
    Case(f"{_FILE} test_epsilon_dist_warper", "epsilon=0.1", logs(0.87, 0.099, 0.001, 0.03), kept=(0,)),
    Case(
        f"{_FILE} test_epsilon_dist_warper",
        "epsilon=0.1",
        logs(0.4, 0.299, 0.101, 0.2),
        kept=(0, 1, 2, 3),
    ),
    Case(f"{_FILE} test_epsilon_dist_warper", "epsilon:cutoff=0.05,keep=2", _LOW, kept=_THREE),
    Case(f"{_FILE} test_epsilon_dist_warper", "epsilon:cutoff=0.05,keep=2", _STEEP, kept=_TWO),
    Case(f"{_FILE} test_eta_dist_warper", "eta=0.0625", logs(0, 0.1, 0.8, 0.1), kept=(1, 2, 3)),
    Case(f"{_FILE} test_eta_dist_warper", "eta=0.0625", logs(0.01, 0.04, 0.9, 0.05), kept=(2,)),
    Case(f"{_FILE} test_eta_dist_warper", "eta:cutoff=0.1,keep=2", _LOW, kept=_TWO),
    Case(f"{_FILE} test_eta_dist_warper", "eta:cutoff=0.1,keep=2", _STEEP, kept=_TWO),
)
_TENTH = (0.1,) * 10
_LOW_FIRST, _HIGH_SIXTH = (-0.1, *_TENTH[1:]), (*_TENTH[:5], 0.4, *_TENTH[6:])
_BIASES = "sequence_bias=[[1,100],[4,100],[[1,0],-100],[[0,1,2],-100],[[1,3,1,3],-100],[[1,3,1,3,1,3],-100]]"

HISTORY = (
    *(
        Case(f"{_FILE} test_repetition_penalty_dist_process", "repetition=2", logits, logits_after=after,
             prompt=prompt)
        for logits, prompt, after in (
            (_LOW_FIRST, (0, 1), (-0.2, 0.05, *_TENTH[2:])),
            (_HIGH_SIXTH, (5, 0), (0.05, *_TENTH[1:5], 0.2, *_TENTH[6:])),
        )
    ),
    *(
        Case(f"{_FILE} test_repetition_penalty_dist_process_exclusion", "repetition:penalty=2,scope=output",
             logits, logits_after=after, prompt=prompt, output=output)
        for logits, prompt, output, after in (
            (_LOW_FIRST, (0, 1), (), _LOW_FIRST),
            (_HIGH_SIXTH, (5, 0), (), _HIGH_SIXTH),
            (_LOW_FIRST, (0, 1), (0, 1), (-0.2, 0.05, *_TENTH[2:])),
            (_HIGH_SIXTH, (5, 0), (5, 0), (0.05, *_TENTH[1:5], 0.2, *_TENTH[6:])),
        )
    ),
    *(
        Case(f"{_FILE} test_encoder_repetition_penalty_dist_process", "repetition:penalty=0.5,scope=prompt",
             logits, logits_after=after, prompt=prompt)
        for logits, prompt, after in (
            (_LOW_FIRST, (0, 1), (-0.05, 0.2, *_TENTH[2:])),
            (_HIGH_SIXTH, (5, 0), (0.2, *_TENTH[1:5], 0.8, *_TENTH[6:])),
        )
    ),
    *(
        Case(f"{_FILE} test_no_repeat_ngram_dist_processor", f"no_repeat_ngram={n}", (0.1,) * width,
             kept=tuple(i for i in range(width) if i not in banned), prompt=prompt)
        for n, width, prompt, banned in (
            (2, 3, (1, 1, 2, 1), (1, 2)),
            (2, 3, (0, 1, 0, 1), (0,)),
            (3, 3, (1, 1, 2, 1), ()),
            (3, 3, (0, 1, 0, 1), (0,)),
            (3, 10, (1, 2, 5, 7, 8, 5, 1, 2), (5,)),
            (3, 3, (1, 2), ()),
            (3, 3, (0, 1), ()),
        )
    ),
    *(
        Case(f"{_FILE} test_encoder_no_repeat_ngram_dist_processor", f"no_repeat_ngram:n={n},scope=prompt",
             (0.1,) * 3, kept=tuple(i for i in range(3) if i not in banned), prompt=prompt, output=output)
        for n, prompt, output, banned in (
            (2, (1, 2, 1, 1), (1, 2, 1), (1, 2)),
            (2, (1, 2, 1, 1), (8, 0, 2), (1,)),
            (3, (1, 2, 1, 1), (1, 2, 1), (1,)),
            (3, (1, 2, 1, 1), (8, 0, 2), ()),
            (2, (1, 2, 1, 1), (1, 0, 2), (1,)),
            (2, (0, 0, 2, 1), (0, 0, 0), (0, 2)),
            (2, (0, 0, 2, 1), (0, 2, 2), (1,)),
            (3, (1, 2, 1, 1), (1, 0, 2), ()),
            (3, (0, 0, 2, 1), (0, 0, 0), (2,)),
            (3, (0, 0, 2, 1), (0, 2, 2), ()),
        )
    ),
    *(
        Case(f"{_FILE} test_bias_dist_processor", _BIASES, (0.0,) * 5, logits_after=after, prompt=prompt)
        for prompt, after in (
            ((0, 1, 3, 1), (-100, 100, 0, -100, 100)),
            ((0, 1, 0, 1), (-100, 100, -100, 0, 100)),
        )
    ),
    *(
        Case("formula of transformers ExponentialDecayLengthPenalty", "length_decay=[3,1.1]", (-2.0, 0.0),
             logits_after=(after, 0), eos=(0,), prompt=(1, 1), output=(1,) * count)
        for count, after in ((3, -2), (4, -1.8), (5, -1.58), (6, -1.338))
    ),
)  # fmt: skip
_EVEN, _TWENTY = (0.25,) * 4, (0.05,) * 20

FORCING = (
    Case(f"{_FILE} test_early_stop_processor", "eos_above=0.1", (0.25, 0.25, -6, 0.25), kept=(0, 1, 2, 3),
         eos=(2,)),
    Case(f"{_FILE} test_early_stop_processor", "eos_above=0.1", _EVEN, kept=(2,), eos=(2,)),
    Case(f"{_FILE} test_early_stop_processor_multi_eos", "eos_above=0.1", (0.25, 0.25, -6, -6),
         kept=(0, 1, 2, 3), eos=(2, 3)),
    Case(f"{_FILE} test_early_stop_processor_multi_eos", "eos_above=0.1", _EVEN, kept=(2, 3), eos=(2, 3)),
    # at the first place alone, and behind three more tokens
    Case(f"{_FILE} test_forced_bos_token_logits_processor", "force:ids=[0]", _TWENTY, kept=(0,)),
    Case(f"{_FILE} test_forced_bos_token_logits_processor", "force:ids=[0]", _TWENTY, kept=(*range(20),),
         output=(3, 5, 7)),
    Case(f"{_FILE} test_forced_eos_token_logits_processor", "force:ids=[0],at=tokens,after_tokens=3", _TWENTY,
         kept=(0,), output=(3, 5, 7)),
    Case(f"{_FILE} test_forced_eos_token_logits_processor", "force:ids=[0],at=tokens,after_tokens=3", _TWENTY,
         kept=(*range(20),), output=(3, 5)),
)  # fmt: skip

TEMPERATURE = (
    *(
        Case(f"{_FILE} test_temperature_dist_warper", f"temperature={t}", (0.05,) * 20, p=(0.05,) * 20)
        for t in (0.5, 1.3)
    ),
)
