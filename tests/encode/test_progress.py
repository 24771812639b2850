"""The progress line of an evaluation: counts by kind, and the time that is left."""

import pytest

from vlc_jax.encode import progress


@pytest.fixture
def lines(monkeypatch):
    """(progress of a set, clock in seconds, lines): every line is due."""
    clock, shown = [0.0], []

    class Line:
        def __init__(self, is_terminal=None):
            pass

        def is_due(self):
            return True

        def show(self, text):
            shown.append(text.removeprefix("set 2 of 5, cola: "))

        def end(self):
            shown.append("end")

    monkeypatch.setattr(progress.progress, "Line", Line)
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    return progress.Progress(), clock, shown


def test_a_line_has_the_counts_and_the_time_left(lines):
    line, clock, shown = lines
    line.begin("set 2 of 5, cola", {"images": 1000, "texts": 2000})
    line.count("images", 0)
    clock[0] = 10.0
    line.count("images", 500)
    clock[0] = 20.0
    line.count("images", 500)
    line.count("texts", 0)
    clock[0] = 21.0
    line.count("texts", 500)
    line.end()
    assert shown[1:3] == [
        "images 500 of 1,000, texts 0 of 2,000, more than 0:00:10 left",
        "images 1,000 of 1,000, texts 0 of 2,000",
    ]
    assert shown[4:] == ["images 1,000 of 1,000, texts 500 of 2,000, 0:00:03 left", "end"]


def test_the_first_items_of_a_kind_set_no_pace(lines):
    line, clock, shown = lines
    line.begin("set 2 of 5, cola", {"texts": 18})
    clock[0] = 60.0
    line.count("texts", 1)
    clock[0] = 61.0
    line.count("texts", 1)
    assert shown == ["texts 1 of 18", "texts 2 of 18, 0:00:16 left"]


def test_cached_features_are_done_and_have_no_pace(lines):
    line, clock, shown = lines
    line.begin("set 2 of 5, cola", {"images": 1000, "texts": 2000})
    line.expect("images", 100)
    line.expect("texts", 0)
    line.count("images", 0)
    clock[0] = 10.0
    line.count("images", 50)
    assert shown[1:] == ["images 950 of 1,000, texts 2,000 of 2,000, 0:00:10 left"]


def test_scores_beyond_their_estimate_have_no_total(lines):
    line, clock, shown = lines
    line.begin("set 2 of 5, cola", {"images": 10, "scores": 20})
    line.count("images", 10)
    line.count("scores", 0)
    clock[0] = 4.0
    line.count("scores", 10)
    line.count("scores", 90)
    assert shown[2:] == [
        "images 10 of 10, scores 10 of 20, 0:00:04 left",
        "images 10 of 10, scores 100",
    ]


def test_nothing_is_shown_outside_a_set(lines):
    line, _, shown = lines
    line.expect("images", 3)
    line.count("images", 3)
    assert shown == []
