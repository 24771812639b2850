import re

import numpy as np
import pytest

from tests.report import pages
from vlc_jax.report import plot, table


def row(value, low, high, step=5, chance=0.5, name="swap"):
    return table.Row(name, "choice", "accuracy", value, low, high, chance, 9, 0.0, "fraction", step)


PICTURES = {
    "curve": lambda: plot.curve("c", "Loss", [1, 2, 3], [3.0, float("nan"), 1.0], resumes=[2]),
    "long": lambda: plot.curve("l", "Norm", range(5000), np.exp(-np.arange(5000) / 500).tolist(),
                               is_log=True, level=(0.5, "half"), right=(0.5, "halves")),
    "zero": lambda: plot.curve("z", "Wait", [1, 2], [0, 0], is_fraction=True, is_from_zero=True),
    "steps": lambda: plot.along(
        "s", "step", [5, 9], [row(0.5, 0.4, 0.6), row(0.6, None, None, 9)], "accuracy"
    ),
    "bars": lambda: plot.bars("b", [row(0.9, 0.8, 1.0), row(0.5, 0.4, 0.6), row(0.2, 0.1, 0.3),
                                    row(0.3, None, None, chance=None)]),
}  # fmt: skip


@pytest.mark.parametrize("kind", PICTURES)
def test_every_picture_is_a_themed_labelled_svg_and_a_file_without_theme(kind, tmp_path):
    picture = PICTURES[kind]()
    picture.write(tmp_path)
    assert min(pages.figure_size(tmp_path / f"{picture.name}.svg")) > 140
    colours = set(re.findall(r"#[0-9a-fA-F]{6}\b|rgb\(", picture.svg)) - {"#ffffff"}
    assert colours == set()  # all others are CSS variables
    assert picture.svg.startswith('<svg role="img" aria-label="')
    ids = re.findall(r'\bid="([^"]*)"', picture.svg)
    assert all(name.startswith(f"{picture.name}-") for name in ids)
    used = re.findall(r'(?:href="#|url\(#)([^")]*)', picture.svg)
    assert set(used) <= set(ids)


def test_the_same_numbers_give_the_same_bytes():
    first, second = PICTURES["bars"](), PICTURES["bars"]()
    assert first == second


def test_a_title_from_data_leaves_the_file_well_formed(tmp_path):
    plot.curve("c", 'a\x1b<defs>&"\ufffe', [1, 2], [1.0, 2.0]).write(tmp_path)
    assert pages.figure_size(tmp_path / "c.svg")


def test_nothing_to_draw_gives_no_picture():
    assert plot.curve("c", "Loss", [], []) is None
    assert plot.curve("c", "Loss", [1], [float("nan")]) is None


def test_words_say_first_and_last_value_and_escape_what_html_would_read():
    picture = plot.curve("c", 'Loss <"a"&b>', [10, 20], [2.5, 1.25])
    assert picture.description == 'Loss <"a"&b> from 2.5 at step 10 to 1.25 at step 20.'
    assert 'aria-label="Loss &lt;&quot;a&quot;&amp;b> from 2.5' in picture.svg


def test_bars_carry_value_verdict_and_chance():
    svg = PICTURES["bars"]().svg
    for text in ("90.0", "50.0  ≈ chance", "20.0  worse than chance"):
        assert f">{text}<" in svg
    assert "chance 50.0" in PICTURES["bars"]().description


def test_long_curves_are_thinned_without_moving_their_mean():
    x, y = np.arange(10_007.0), np.random.default_rng(0).random(10_007)
    thin_x, thin_y = plot._thin(x, y)
    assert len(thin_x) == len(thin_y) == plot.MAX_POINTS
    np.testing.assert_allclose(thin_y.mean(), y.mean(), rtol=1e-3)
    assert (np.diff(thin_x) > 0).all()


def test_running_mean_keeps_lines_straight_and_quiets_noise():
    line = np.linspace(3.0, 5.0, 400)
    inner = slice(10, -10)
    np.testing.assert_allclose(plot._running_mean(line)[inner], line[inner])
    noise = np.random.default_rng(0).standard_normal(4000)
    assert plot._running_mean(noise).std() < 0.2


@pytest.mark.parametrize(
    ("value", "text"),
    [(800, "800"), (2500, "2500"), (12_000, "12k"), (1_500_000, "1.5M"), (2e9, "2G")],
)
def test_steps_are_written_short(value, text):
    assert plot._short(value) == text
