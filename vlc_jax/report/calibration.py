"""Page of a calibration (vlc_jax/evaluators/calibration.py), or of its check on other pairs."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes

from vlc_jax.report import blocks, plot
from vlc_jax.report.blocks import Heading, Table, Text

NAMES = {  # of estimates -> what they are
    "accuracy": "accuracy at 50 %",
    "log_loss": "log loss",
    "brier": "Brier score",
    "offset": "offset of log odds, 0 if they hold",
    "slope": "slope of log odds, 1 if they hold",
}


def content(title: str, method: str, figures: Mapping[str, Any]) -> list[blocks.Block]:
    """Verdict, figures, plot, thresholds and terms."""
    page = [Heading(title, 1), *map(Text, sentences(method, figures))]
    page += [Heading("Figures"), figures_table(figures), blocks.Figures([picture(figures)], "wide")]
    if figures.get("thresholds"):
        page += [Heading("Thresholds"), thresholds_table(figures["thresholds"])]
    return page


def sentences(method: str, figures: Mapping[str, Any]) -> list[str]:
    """The verdict, what the figures are of, which terms are used, and warnings."""
    error, share = figures["calibration_error"], figures["matches"] / figures["pairs"]
    of = f"{figures['pairs']:,} pairs of {figures['images']:,} images, {share:.1%} of which match"
    lines = [f"Method {method}, on held-out folds of {of}. No image is in two folds."]
    holds = "hold" if error["low"] <= 0 else "do not hold"
    if "p_value" in figures:
        holds = "do not hold: the set is shifted" if figures["is_shifted"] else "hold"
        lines = [f"Stored calibration ({method}), on {of}."]
        lines.append(f"The stated probabilities {holds} (p = {figures['p_value']:.2g}).")
    else:
        lines.append(f"The stated probabilities {holds}: excess error {_interval(_excess(error))}.")
    lines.append(
        f"The calibration error is above zero by chance alone: {error['expected']:.4f} on average "
        f"and up to {error['limit']:.4f} (95 %) if the probabilities hold. Excess: the error less "
        "that average."
    )
    for name, term in figures.get("terms", {}).items():
        used = "used" if term["is_used"] else "left out"
        gain = _interval([-each for each in (term["gain"][k] for k in (0, 2, 1))])
        lines.append(f"Term {name}: {used}, changes the log loss by {gain}.")
    return lines + [f"Note: {note}." for note in figures["notes"]]


def figures_table(figures: Mapping[str, Any]) -> Table:
    """Estimates with their intervals."""
    error = figures["calibration_error"]
    rows = [[name, *_cells(figures[key])] for key, name in NAMES.items() if key in figures]
    rows.insert(2, ["log loss of the share of matches", f"{figures['log_loss_of_share']:.4f}", "–"])
    rows.append(["calibration error (ECE)", f"{error['value']:.4f}", "–"])
    rows.append(["excess calibration error", *_cells(_excess(error))])
    return Table(["figure", "value", "95 % interval"], rows)


def thresholds_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """A row per wanted rate."""
    header = ["wanted", "probability from", "precision", "false alarms", "matches found"]
    cells = []
    for row in rows:
        sign = "≥" if row["kind"] == "precision" else "≤"
        wanted = f"{row['kind']} {sign} {row['wanted']:.1%}"
        if row["threshold"] is None:
            cells.append([wanted, "not reached", "–", "–", "–", "–"])
            continue
        shares = [_percent(row[key]) for key in ("precision", "false_alarms", "found", "none")]
        cells.append([wanted, f"{row['threshold']:.4f}", *shares])
    caption = (
        "Held-out pairs; Clopper-Pearson intervals, which take pairs as independent. None of "
        "these: images with no text from the threshold on. Precision is of this share of matches."
    )
    return Table([*header, "none of these"], cells, caption=caption)


def picture(figures: Mapping[str, Any]) -> plot.Picture:
    """Reliability plot: the share of matches over the stated probability, in bins of equally many
    pairs."""
    bins = figures["bins"]

    def paint(axes: Axes) -> None:
        axes.plot([0, 1], [0, 1], "--", color=plot.THEME["muted"], linewidth=1)
        for row in bins:
            ends = [row["low"], row["high"]]
            axes.plot([row["probability"]] * 2, ends, color=plot.THEME["blue"], linewidth=1.6)
        places, shares = ([row[key] for row in bins] for key in ("probability", "share"))
        axes.plot(places, shares, "o", color=plot.THEME["blue"], markersize=4)
        axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel="stated probability")
        axes.set_ylabel("share of pairs that match")
        axes.grid(color=plot.THEME["line"], linewidth=0.7)
        axes.set_axisbelow(True)

    points = "; ".join(f"{row['probability']:.3f}: {row['share']:.3f}" for row in bins)
    title = f"Reliability, 95 % intervals, about {bins[0]['count']:,} pairs in each bin"
    return plot.draw("calibration", title, f"Share of matches by probability: {points}.",
                     (5.6, 4.8), paint)  # fmt: skip


def _excess(error: Mapping[str, float]) -> list[float]:
    return [error["excess"], error["low"], error["high"]]


def _interval(estimate: Sequence[float]) -> str:
    return f"{estimate[0]:.4f} ({estimate[1]:.4f} to {estimate[2]:.4f})"


def _cells(estimate: Sequence[float]) -> list[str]:
    return [f"{estimate[0]:.4f}", f"{estimate[1]:.4f} to {estimate[2]:.4f}"]


def _percent(estimate: Sequence[float]) -> str:
    return f"{estimate[0]:.1%} ({estimate[1]:.1%} to {estimate[2]:.1%})"
