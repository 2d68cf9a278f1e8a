"""mlx-lm, tests/test_sample_utils.py (MIT)."""

from tests.processors.vectors.case import Case, logs

_FILE = "mlx-lm tests/test_sample_utils.py"
_A, _B, _C, _D = logs(0.9, 0, 0, 0.1), logs(0, 0.8, 0.1, 0.1), logs(0, 0.8, 0, 0.1), logs(0, 0.5, 0.4, 0.1)
_XTC = logs(0.4, 0.3, 0.15, 0.15)
_THEIRS = "compare=gt,ties=keep"

TRUNCATION = (
    Case(f"{_FILE} test_apply_top_p", "top_p=0.3", _A, p=(1, 0, 0, 0)),
    Case(f"{_FILE} test_apply_top_p", "top_p=0.95", _A, p=(0.9, 0, 0, 0.1)),
    Case(f"{_FILE} test_apply_top_p", "top_p=0.4", _D, p=(0, 1, 0, 0)),
    Case(f"{_FILE} test_apply_top_p", "top_p=0.6", _D, p=(0, 5 / 9, 4 / 9, 0)),
    Case(f"{_FILE} test_apply_top_p", "top_p=0.95", _D, p=(0, 0.5, 0.4, 0.1)),
    Case(f"{_FILE} test_apply_top_p", "top_p=0.5", _A, p=(1, 0, 0, 0)),
    Case(f"{_FILE} test_apply_top_p", "top_p=0.5", _B, p=(0, 1, 0, 0)),
    Case(f"{_FILE} test_apply_min_p", "min_p=0.8", _A, p=(1, 0, 0, 0)),
    Case(f"{_FILE} test_apply_min_p", "min_p=0.05", _A, p=(0.9, 0, 0, 0.1)),
    Case(f"{_FILE} test_apply_min_p", "min_p=0.7", _A, p=(1, 0, 0, 0)),
    Case(f"{_FILE} test_apply_min_p", "min_p=0.7", _C, p=(0, 1, 0, 0)),
    Case(f"{_FILE} test_apply_top_k", "top_k=1", _A, p=(1, 0, 0, 0)),
    Case(f"{_FILE} test_apply_top_k", "top_k=2", logs(0.6, 0, 0.1, 0.3), p=(2 / 3, 0, 0, 1 / 3)),
    Case(f"{_FILE} test_apply_top_k", "top_k=1", _C, p=(0, 1, 0, 0)),
    Case(
        f"{_FILE} test_apply_xtc", f"xtc:probability=1,threshold=0.2,{_THEIRS}", _XTC, p=(0, 0.5, 0.25, 0.25)
    ),
    Case(f"{_FILE} test_apply_xtc", f"xtc:probability=1,threshold=0.1,{_THEIRS}", _XTC, p=(0, 0, 0.5, 0.5)),
    Case(
        f"{_FILE} test_apply_xtc",
        "xtc:probability=1,threshold=0.1",
        _XTC,
        p=(0, 0, 0.5, 0.5),
        differs="[17]: of ties the lowest id stays",
    ),
    Case(
        f"{_FILE} test_apply_xtc",
        f"xtc:probability=1,threshold=0.1,exempt=[0],{_THEIRS}",
        _XTC,
        p=(4 / 7, 0, 1.5 / 7, 1.5 / 7),
    ),
    Case(f"{_FILE} test_apply_xtc", "xtc:probability=0,exempt=[0]", _XTC, p=(0.4, 0.3, 0.15, 0.15)),
)
_SEEN = (0, 0, 0, 1, 1)

HISTORY = (
    Case(f"{_FILE} test_presence_penalty", "presence:penalty=0.5,scope=both,window=5", (0.0,) * 4,
         logits_after=(-0.5, -0.5, 0, 0), prompt=_SEEN),
    Case(f"{_FILE} test_frequency_penalty", "frequency:penalty=0.5,scope=both,window=5", (0.0,) * 4,
         logits_after=(-1.5, -1.0, 0, 0), prompt=_SEEN),
    Case("formula of mlx-lm make_logits_processors",
         "repetition:penalty=1.5,window=5 | frequency:penalty=0.25,scope=both,window=5 "
         "| presence:penalty=0.5,scope=both,window=5",
         (1.0, 0.5, 0.0, -0.5), logits_after=(1 / 1.5 - 1.25, 0.5 / 1.5 - 1, 0, -0.5), prompt=_SEEN),
)  # fmt: skip
