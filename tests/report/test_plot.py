import re

import numpy as np
import pytest

from tests.report import pages
from vlc_jax.report import pictures, plot, table


def row(value, low, high, step=5, chance=0.5, name="swap"):
    return table.Row(name, "choice", "accuracy", value, low, high, chance, 9, 0.0, "fraction", step)


def curve(name, title, steps, values, **options):
    return plot.curves(name, title, [("", steps, values)], **options)


def bars(*rows):
    remarks = [[pictures.WORDS.get(row.verdict, "")] for row in rows]
    return plot.bars("b", "Benchmarks", [""], [[row] for row in rows], remarks)


PICTURES = {
    "curve": lambda: curve("c", "Loss", [1, 2, 3], [3.0, float("nan"), 1.0], resumes=[2]),
    "long": lambda: curve("l", "Norm", range(5000), np.exp(-np.arange(5000) / 500).tolist(),
                          axis="log", ln_batch=0.5),
    "zero": lambda: curve("z", "Wait", [1, 2], [0, 0], axis="percent zero"),
    "steps": lambda: plot.along(
        "s", "step", [5, 9], [row(0.5, 0.4, 0.6), row(0.6, None, None, 9)], "accuracy"
    ),
    "bars": lambda: bars(row(0.9, 0.8, 1.0), row(0.5, 0.4, 0.6), row(0.2, 0.1, 0.3),
                         row(0.3, None, None, chance=None)),
    "bars of runs": lambda: plot.bars(
        "g", "Costs $1 or $2", ["_a", "b$c$"],
        [[row(0.9, 0.8, 1.0), None], [row(0.2, None, None), row(0.47, 0.4, 0.48, chance=None)]],
        [["", ""], ["▼", "≠"]],
    ),
    "curves of runs": lambda: plot.curves(
        "c", "Loss", [("_a", [], []), ("b$c$", range(100), np.ones(100).tolist())], axis="log"
    ),
    "many": lambda: plot.curves(
        "m", "Loss", [(f"{n}", [1, 2], [n, n]) for n in range(9)], axis="zero"
    ),
}  # fmt: skip
TEXTS = {  # texts of a figure
    "bars": {"90.0", "50.0 ≈ chance", "20.0 ≺ chance"},
    "bars of runs": {"_a", "b$c$", "90.0", "20.0 ▼", "47.0 ≠", "Costs $1 or $2"},
    "curves of runs": {"b$c$"},
    "many": {*"012345678"},
    "long": {"ln(batch)", "loss / ln(batch)", "1.5k"},
}


@pytest.mark.parametrize("kind", PICTURES)
def test_every_picture_is_a_themed_labelled_svg_and_a_file_without_theme(kind, tmp_path):
    picture = PICTURES[kind]()
    picture.write(tmp_path)
    assert min(pages.figure_size(tmp_path / f"{picture.name}.svg")) > 100
    colours = set(re.findall(r"#[0-9a-fA-F]{6}\b|rgb\(", picture.svg)) - {"#ffffff"}
    assert colours == set()  # all others are CSS variables
    assert picture.svg.startswith('<svg role="img" aria-label="')
    ids = re.findall(r'\bid="([^"]*)"', picture.svg)
    assert all(name.startswith(f"{picture.name}-") for name in ids)
    used = re.findall(r'(?:href="#|url\(#)([^")]*)', picture.svg)
    assert set(used) <= set(ids)
    texts = {text.strip() for text in re.findall(r">([^<>]+)</text>", picture.svg)}
    assert TEXTS.get(kind, set()) <= texts


def test_a_run_without_values_leaves_its_colour_unused():
    svg = PICTURES["curves of runs"]().svg
    assert f"var(--{plot.RUNS[1]})" in svg
    assert f"var(--{plot.RUNS[0]})" not in svg


def test_styles_of_24_runs_are_all_different():
    assert len({plot.run_style(place) for place in range(24)}) == 24
    assert {colour for colour, *_ in map(plot.run_style, range(24))} <= set(plot.THEME)


def test_a_title_from_data_leaves_the_file_well_formed(tmp_path):
    curve("c", 'a\x1b<defs>&"\ufffe', [1, 2], [1.0, 2.0]).write(tmp_path)
    assert pages.figure_size(tmp_path / "c.svg")


def test_a_curve_needs_two_points_of_one_run():
    short = ("short", [1], [2.0])
    assert curve("c", "Loss", [], []) is None
    assert curve("c", "Loss", [1, 2], [2.0, float("nan")]) is None
    assert plot.curves("c", "Loss", [short, short, ("a", [], [])]) is None
    picture = plot.curves("c", "Loss", [short, ("long", [1, 2], [2.0, 1.0])])
    assert "short from 2 at step 1" in picture.description


def test_words_say_first_and_last_value_and_escape_what_html_would_read():
    picture = curve("c", 'Loss <"a"&b>', [10, 20], [2.5, 1.25])
    assert picture.description == 'Loss <"a"&b> from 2.5 at step 10 to 1.25 at step 20.'
    assert 'aria-label="Loss &lt;&quot;a&quot;&amp;b> from 2.5' in picture.svg


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
