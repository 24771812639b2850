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


def count(lines, counts):
    """Counts of a set: seconds since its start, kind and number of items."""
    line, clock, shown = lines
    for seconds, kind, number in counts:
        clock[0] = seconds
        line.count(kind, number)
    return shown


def test_a_line_has_the_counts_and_the_time_left(lines):
    lines[0].begin("set 2 of 5, cola", {"images": 1000, "texts": 2000})
    images = (0.0, "images", 0), (10.0, "images", 500), (20.0, "images", 500)
    shown = count(lines, (*images, (20.0, "texts", 0), (21.0, "texts", 500)))
    lines[0].end()
    assert shown[1:3] == [
        "images 500 of 1,000, texts 0 of 2,000, more than 0:00:10 left",
        "images 1,000 of 1,000, texts 0 of 2,000",
    ]
    assert shown[4:] == ["images 1,000 of 1,000, texts 500 of 2,000, 0:00:03 left", "end"]


def test_the_first_items_of_a_kind_set_no_pace(lines):
    lines[0].begin("set 2 of 5, cola", {"texts": 18})
    shown = count(lines, ((60.0, "texts", 1), (61.0, "texts", 1)))
    assert shown == ["texts 1 of 18", "texts 2 of 18, 0:00:16 left"]


def test_cached_features_are_done_and_have_no_pace(lines):
    lines[0].begin("set 2 of 5, cola", {"images": 1000, "texts": 2000})
    lines[0].expect("images", 100)
    lines[0].expect("texts", 0)
    shown = count(lines, ((0.0, "images", 0), (10.0, "images", 50)))
    assert shown[1:] == ["images 950 of 1,000, texts 2,000 of 2,000, 0:00:10 left"]


def test_scores_beyond_their_estimate_have_no_total(lines):
    lines[0].begin("set 2 of 5, cola", {"images": 10, "scores": 20})
    start = (0.0, "images", 10), (0.0, "scores", 0)
    shown = count(lines, (*start, (4.0, "scores", 10), (4.0, "scores", 90)))
    assert shown[2:] == [
        "images 10 of 10, scores 10 of 20, 0:00:04 left",
        "images 10 of 10, scores 100",
    ]


def test_nothing_is_shown_outside_a_set(lines):
    line, _, shown = lines
    line.expect("images", 3)
    line.count("images", 3)
    assert shown == []
