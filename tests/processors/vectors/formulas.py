"""Formulas of papers, computed apart in float64 with Python's standard library."""

from tests.processors.vectors.case import Case, logs

_FILE = "formulas"
_TEN = logs(0.42, 0.21, 0.14, 0.09, 0.06, 0.04, 0.02, 0.01, 0.006, 0.004)
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
