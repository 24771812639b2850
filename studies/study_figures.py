"""Figures of a study."""

from collections.abc import Callable, Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from studies import study_binding
from studies.study_columns import COLUMNS, SHARE, SHARES, SWEEP, TRIPLET, Column
from studies.study_results import Results, is_unresolved

PALE = 0.35  # opacity of a bar whose mean is not resolved
COLOURS = ("#0a68b4", "#a35200", "#5d6873")


def _bag_of_words(results: Results) -> Figure:
    runs = ("clip", "clip_ft_400", "clip_ft_1200", "negclip", "relations")
    return _bars(results, runs, [COLUMNS[title] for title in ("attribute swap", "relation swap")])


def _collapse(results: Results) -> Figure:
    columns = [
        COLUMNS[f"{title} size {end}"]._replace(title=f"{title}, {kind} synonyms")
        for end, kind in (("A", "seen"), ("B", "unseen"))
        for title in TRIPLET
    ]
    return _bars(results, ("clip_ft", "hn", "hp_hn"), columns)


def _blind(results: Results) -> Figure:
    runs = ("clip", "clip_ft", "hn", "hn_permuted", "hn_balanced_52", "hn_balanced_52_permuted")
    titles = ("Orig REPLACE", "Aug REPLACE", "Orig SWAP", "attribute swap")
    return _bars(results, runs, [COLUMNS[title] for title in titles])


def _photographs(results: Results) -> Figure:
    runs = ("clip_ft", "hn", "hp_hn", "clip_ft_permuted", "hn_permuted")
    titles = ("Orig", "Aug", "Aug, unseen synonyms", "swapped words")
    return _bars(results, [f"photo_{run}" for run in runs], [COLUMNS[title] for title in titles])


def _bars(results: Results, runs: Sequence[str], columns: Sequence[Column]) -> Figure:
    figure = Figure(figsize=(max(7.0, 1.6 + 1.4 * len(columns)), 3.8), layout="constrained")
    axes = figure.add_subplot()
    width, titles = 0.8 / len(runs), results.titles(runs)
    for i, run in enumerate(runs):
        values = [results.value(run, column.benchmark, column.metric) for column in columns]
        positions = np.arange(len(columns)) + (i - (len(runs) - 1) / 2) * width
        bars = axes.bar(
            positions,
            [100 * value.mean for value in values],
            width=0.92 * width,
            yerr=[100 * value.half for value in values],
            label=titles[i],
            color=matplotlib.colormaps["viridis"](0.1 + 0.75 * i / max(1, len(runs) - 1)),
            error_kw={"linewidth": 1},
        )
        for bar, value in zip(bars, values, strict=True):
            bar.set_alpha(PALE if is_unresolved(value.half) else 1)
    for i, column in enumerate(columns):
        axes.plot([i - 0.45, i + 0.45], [100 * column.chance] * 2, "--", color="#5d6873", lw=1)
    axes.set_xticks(range(len(columns)), [each.title.replace(", ", "\n") for each in columns])
    is_any_pale = any(bar.get_alpha() == PALE for bar in axes.patches)
    axes.set_ylabel("percent; dashed: chance" + "\npale: not resolved" * is_any_pale)
    axes.set_ylim(0, 105)
    figure.legend(frameon=False, fontsize=8, ncols=2, loc="outside lower center")
    return figure


def _sweep(results: Results) -> Figure:
    lines = {
        f"size synonyms {kind}": {
            title: (COLUMNS[f"{title} size {end}"], SWEEP) for title in TRIPLET
        }
        for end, kind in (("A", "seen in HP training"), ("B", "not seen"))
    }
    return _lines(results, (0, 0.25, 0.5, 0.75, 1), lines, "weight of the hard negatives")


def _shares(results: Results) -> Figure:
    methods = {"HN": "hn", "CLIP-FT": "clip_ft"}
    lines = {
        f"{title}, synonyms {end}": {
            name: (COLUMNS[f"{title} {end}"], [f"{SHARE}_{method}_{share}" for share in SHARES])
            for name, method in methods.items()
        }
        for title, end in (("Orig", "A"), ("Aug", "A"), ("Aug", "B"))
    }
    figure = _lines(results, SHARES, lines, "share of synonyms in training captions")
    for axes in figure.axes:
        axes.set_xscale("log")
        axes.set_xticks(SHARES, [f"{share:g}" for share in SHARES])
        axes.minorticks_off()
    return figure


def _lines(
    results: Results,
    places: Sequence[float],
    panels: Mapping[str, Mapping[str, tuple[Column, Sequence[str]]]],
    words: str,
) -> Figure:
    """A panel for each title, with lines of a column over the runs at `places`."""
    figure = Figure(figsize=(max(9, 3.6 * len(panels)), 3.4), layout="constrained")
    grid = figure.subplots(1, len(panels), sharey=True)
    for axes, (title, lines) in zip(grid, panels.items(), strict=True):
        for colour, (name, (column, runs)) in zip(COLOURS, lines.items(), strict=False):
            values = [results.value(run, column.benchmark, column.metric) for run in runs]
            means, halves = ([100 * value[i] for value in values] for i in (0, 1))
            style = {"color": colour, "marker": "o", "capsize": 3}
            axes.errorbar(places, means, yerr=halves, label=name, **style)
            for x, value in zip(places, values, strict=True):
                if is_unresolved(value.half):
                    axes.text(x, 100 * value.mean, " not resolved", color=colour, fontsize=8)
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_xlabel(words)
        axes.set_xticks(places)
        axes.set_ylim(0, 100)
    figure.axes[0].set_ylabel("percent")
    figure.axes[0].legend(frameon=False)
    return figure


FIGURES: Sequence[tuple[str, str, Callable[[Results], Figure]]] = (  # part, name
    ("a", "bag_of_words", _bag_of_words),
    ("b", "collapse", _collapse),
    ("b", "sweep", _sweep),
    ("k", "blind", _blind),
    ("n", "binding", study_binding.figure),
    ("o", "shares", _shares),
    ("p", "photographs", _photographs),
)
