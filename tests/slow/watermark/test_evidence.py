"""The detectors count and score as transformers' and vLLM's do, on texts of both."""

import torch

from tests.watermark.test_evidence import agrees

# huggingface/transformers tests/generation/test_watermarking.py, WatermarkDetectorTest: the scheme, the width
# of the context, and how many windows of tokens are scored; the texts, and how many of the windows differ.
SCHEMES = [("lefthash", 1, 9), ("lefthash", 2, 8), ("selfhash", 1, 10), ("selfhash", 2, 9)]


TEXTS = [("identical", [3] * 10, 1), ("alternating", [1, 2] * 5, 2), ("distinct", list(range(1, 11)), None)]


SETTINGS = [
    (scheme, width, tokens, is_once, (unique or windows) if is_once else windows)
    for scheme, width, windows in SCHEMES
    for _, tokens, unique in TEXTS
    for is_once in (True, False)
]


def test_the_24_settings_of_transformers():
    for scheme, width, tokens, is_once, scored in SETTINGS:
        assert agrees(scheme, width, tokens, is_once) == scored, scheme


def test_a_long_text_has_the_z_value_of_transformers():
    for is_once in [True, False]:
        for scheme in ["lefthash", "selfhash"]:
            tokens = torch.randint(0, 40, (300,), generator=torch.Generator().manual_seed(3)).tolist()
            agrees(scheme, 2, tokens, is_once)
