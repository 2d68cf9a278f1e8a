"""transformers, tests/generation/test_logits_process.py (Apache-2.0)."""

from tests.processors.vectors.case import Case

_FILE = "transformers tests/generation/test_logits_process.py"
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
