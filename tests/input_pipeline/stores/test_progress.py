"""Progress of commands, on stderr."""

import re

from vlc_jax.input_pipeline.stores import progress


def test_progress_in_a_log_is_lines_with_rate_and_time_left(capsys, monkeypatch):
    with progress.bar("images", 2000) as advance:
        advance(1500)
    assert capsys.readouterr().err == ""  # a line every few seconds
    monkeypatch.setattr(progress, "_EVERY_IN_A_FILE", 0.0)
    with progress.bar("images", 2000, done=1000) as advance:
        advance(1500)
        advance(2000)
    first, last = capsys.readouterr().err.splitlines()
    assert re.fullmatch(r"images: 1,500 of 2,000, [\d,.]+/s, 0:00:00 left", first)
    assert last.startswith("images: 2,000 of 2,000, ")


def test_the_rate_is_of_what_is_new_since_the_start(monkeypatch, capsys):
    now = iter([100.0, 100.0, 110.0, 110.0, 110.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(now))
    with progress.bar("images", 4000, done=1000) as advance:
        advance(2000)
    assert capsys.readouterr().err == "images: 2,000 of 4,000, 100.0/s, 0:00:20 left\n"
