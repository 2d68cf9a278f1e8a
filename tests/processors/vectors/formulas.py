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

_SQUARE = (
    0.2741763736, 0.2373737004, 0.190888008, 0.1345425252, 0.08804091997, 0.05219996991, 0.01699699454,
    0.004148386012, 0.001220008776, 0.0004131136742,
)  # fmt: skip
_BETWEEN = (
    0.3098614539, 0.2742674224, 0.2119154949, 0.1254446897, 0.05814225365, 0.01923399907, 0.001119354969,
    1.511927002e-05, 2.088386282e-07, 3.262430633e-09,
)  # fmt: skip
_ADAPTED = (
    0.01574747264, 0.3467109028, 0.2511149129, 0.1310402005, 0.07939183292, 0.05482638324, 0.03693811659,
    0.03006800576, 0.02765213188, 0.02651004076,
)  # fmt: skip

TEMPERATURE = (
    *(
        Case(f"{_FILE} ten_probabilities", chain, _TEN, logits_after=tuple((x - _TEN[0]) / t for x in _TEN))
        for chain, t in (
            ("dynamic_temperature:min=0.5,max=1.5", 1.22036027324),
            ("dynamic_temperature:min=0.5,max=1.5,exponent=2", 1.01891892326),
            ("edt:theta=0.1,t0=1", 0.986637094643),
        )
    ),
    Case(f"{_FILE} ten_probabilities", "smoothing=0.3", _TEN, p=_SQUARE),
    Case(f"{_FILE} ten_probabilities", "smoothing:factor=0.3,curve=2", _TEN, p=_BETWEEN),
    *(
        Case(
            f"{_FILE} ten_probabilities",
            f"mirostat:version={version},tau={mu / 2}",
            _TEN,
            kept=tuple(range(count)),
        )
        for version, mu, count in (
            (2, 1, 1), (2, 2.3, 2), (2, 5, 6), (2, 10, 10), (1, 1, 1), (1, 2, 2), (1, 3, 3), (1, 4, 5),
        )
    ),
    Case(f"{_FILE} ten_probabilities", "adaptive_p=0.2", _TEN, p=_ADAPTED),
)  # fmt: skip
