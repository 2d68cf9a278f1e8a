"""False alarms have the stated rate; a marked passage is found inside a longer text."""

from gencli.watermark_detector import detect
from tests.watermark.test_detect import SCORERS, VOCAB, marked, texts


def check_false_alarms(name):
    scorer, vocab = SCORERS[name], 64 if name == "selfhash" else VOCAB
    found = [detect(scorer, text, level=0.01) for text in texts(1000, 40, vocab)]
    alarms = sum(one.verdict == "marked" for one in found)
    assert alarms <= 21, "10 are expected; more than 21 in one of 1000 trials"
    likely = sum(one.p_value <= 0.25 for one in found)
    assert (50 if name in ("kgw", "selfhash") else 190) < likely < 300, name


def test_false_alarms_have_the_stated_rate():
    check_false_alarms("kgw")


def test_windows_keep_the_rate_of_false_alarms():
    found = [detect(SCORERS["gumbel"], text, level=0.01, window=20) for text in texts(500, 60)]
    assert sum(one.verdict == "marked" for one in found) <= 12
    assert all(one.window.count == 9 for one in found)
