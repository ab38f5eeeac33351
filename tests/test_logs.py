"""A child's log as its parent reads it."""

import logging

from visavis.logs import ChildLog


def test_lines_have_the_level_that_they_name() -> None:
    log = ChildLog()
    assert log.read("WARNING visavis.worker: it is late") == (logging.WARNING, "visavis.worker: it is late")
    assert log.last_words == "it is late"


def test_a_traceback_has_the_level_of_its_first_line() -> None:
    log = ChildLog()
    assert log.read("loose words") == (logging.INFO, "loose words")
    assert log.read("Traceback (most recent call last):")[0] == logging.ERROR
    log.read("ERROR visavis.calls: rtc_1: failed")
    assert log.read('  File "x.py", line 1') == (logging.ERROR, '  File "x.py", line 1')
    assert log.last_words == "rtc_1: failed"
    assert log.read("INFO words") == (logging.INFO, "words")
    assert log.last_words == "words"
