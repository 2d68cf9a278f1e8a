"""False alarms have the stated rate; a marked passage is found inside a longer text."""

from tests.slow.watermark.test_detect import check_false_alarms
from tests.watermark.test_detect import SCORERS


def test_false_alarms_of_each_mark_have_the_stated_rate():
    for name in SCORERS:
        check_false_alarms(name)
