"""Formulas of papers, computed apart in float64 with Python's standard library."""

from tests.processors.vectors.case import Case, logs

_FILE = "formulas"
_TEN = logs(0.42, 0.21, 0.14, 0.09, 0.06, 0.04, 0.02, 0.01, 0.006, 0.004)
_EXPECTED = (
    0.21, 0.105, 0.2591891892, 0.1666216216, 0.1110810811, 0.07405405405, 0.03702702703, 0.01851351351,
    0.01110810811, 0.007405405405,
)  # fmt: skip

TRUNCATION = (
    # The count of tokens that stay, from the most likely one on.
    *(
        Case(f"{_FILE} ten_probabilities", chain, _TEN, kept=tuple(range(count)))
        for chain, count in (
            ("top_h=0.1", 1),
            ("top_h=0.4", 1),
            ("top_h=0.6", 3),
            ("top_h=0.9", 6),
            ("p_less=2", 1),
            ("p_less:order=2,norm=true", 2),
            ("p_less=3", 1),
            ("min_k=0", 1),
            ("min_k=3", 1),
            ("min_k=20", 4),
            ("min_k=40", 8),
            ("top_a=0.1", 7),
            ("top_a=0.5", 4),
            ("top_a=1", 2),
            ("tfs=0.3", 1),
            ("tfs=0.7", 2),
            ("tfs=0.95", 6),
            ("tfs=0.999", 8),
            ("tfs:z=0.3,style=kobold", 1),
            ("tfs:z=0.7,style=kobold", 1),
            ("tfs:z=0.95,style=kobold", 5),
            ("tfs:z=0.999,style=kobold", 7),
            ("epsilon=0.005", 9),
            ("epsilon=0.05", 5),
            ("epsilon=0.3", 1),
            ("eta=0.005", 9),
            ("eta=0.05", 5),
            ("eta=0.3", 3),
            ("typical=0.5", 4),
            ("typical=0.9", 5),
            ("typical:p=0.9,boundary=exclusive", 4),
            ("top_n_sigma=0.5", 2),
            ("top_n_sigma=1", 3),
            ("top_n_sigma=2", 6),
            ("top_n_sigma:n=0.5,std=sample", 2),
            ("top_n_sigma:n=1,std=sample", 4),
            ("top_n_sigma:n=2,std=sample", 7),
        )
    ),
    Case(f"{_FILE} ten_probabilities", "typical=0.2", _TEN, kept=(1,)),
    Case(f"{_FILE} ten_probabilities", "typical:p=0.5,boundary=exclusive", _TEN, kept=(1, 2, 3)),
    Case(f"{_FILE} ten_probabilities", "xtc:probability=0.5,threshold=0.1,mode=expected", _TEN, p=_EXPECTED),
    *(
        Case(
            f"{_FILE} four_equal", f"typical:p={p},boundary={boundary}", (0.0,) * 4, kept=tuple(range(count))
        )
        for p, *counts in ((0.25, 1, 2, 1), (0.5, 2, 3, 1), (0.75, 3, 4, 2))
        for boundary, count in zip(("inclusive", "strict", "exclusive"), counts, strict=True)
    ),
)
