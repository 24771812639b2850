"""Page that compares several runs: comparison.html and comparison.md."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlc_jax.report import compare, compare_plot, forgetting, page, paired, plot, summary, table
from vlc_jax.report.compare import Line
from vlc_jax.report.read_workdir import Run


def write(runs: Sequence[Run], folder: Path, beside: Sequence[str] = ()) -> Path:
    """Writes both pages and their figures into `folder`; returns the path of comparison.html.

    beside: sentences about the published values beside those of the runs (`paper.add`).
    """
    return page.render(folder, "comparison", make_context(runs) | {"beside": beside})


def make_context(runs: Sequence[Run]) -> dict[str, Any]:
    """Variables of the two templates."""
    names = compare.names([run.path for run in runs])
    results = compare.newest_results(runs)
    lines, groups = compare.lines(results), compare.by_group(results)
    all_lines = compare.lines(results, everything=True)
    balance = forgetting.measure(results)
    overviews = [overview(run, newest) for run, newest in zip(runs, results, strict=True)]
    return {
        "names": names,
        "styles": [compare_plot.run_style(index)[0] for index in range(len(runs))],
        "statuses": [summary.status(run) for run in runs],
        "paths": [run.path for run in runs],
        "lines": lines,
        "groups": groups,
        "paired": list(paired.cells(names, pairs)) if (pairs := paired.lines(runs)) else [],
        "paired_legend": paired.legend(names),
        "cases_command": page.cases_command(runs[:2]),
        "balance": balance,
        "all_lines": all_lines,
        "tables": {
            "lines": compare.to_markdown(names, lines),
            "groups": compare.to_markdown(names, groups),
            "paired": paired.to_markdown(names, pairs),
        },
        "legend": compare.legend(names),
        "other_cases": compare.other_cases(results),
        "stale": compare.stale(names, results),
        "pictures": {
            "benchmarks": bars(names, compare.headlines(results)),
            "forgetting": [forgetting.picture(names, balance)] if balance else [],
            "groups": group_bars(names, groups),
            "training": training_curves(names, runs),
        },
        "config_diff": compare.config_differences(runs),
        "without_config": [n for n, run in zip(names, runs, strict=True) if not run.config],
        "overview": [row for row in summary.side_by_side(overviews) if any(row[1])],
        "notes": [(n, note) for n, run in zip(names, runs, strict=True) for note in run.notes],
        "number": table.number,
        "interval": table.interval,
        "difference": compare.difference_text,
        "has_paper": compare.has_paper,
    }


def overview(run: Run, results: dict[str, dict[str, Any]]) -> dict[str, str]:
    """`summary.overview` of a run and fields of comparisons only; "" if unknown."""
    status = summary.status(run)
    steps = sorted({result["step"] for result in results.values()})
    return {
        "Workdir": str(run.path),
        "Status": f"{status['word']}. {status['text']}",
        "Started from": str(run.config.get("init_from") or ""),
        "Evaluated at step": ", ".join(f"{step:,}" for step in steps),
        **dict(summary.overview(run)),
        "Command": summary.command(run.env.get("command")),
    }


def bars(names: Sequence[str], headlines: Sequence[Line]) -> list[plot.Picture]:
    """Bar charts of headline metrics; benchmarks with `Display.by_group` have a separate figure."""
    fractions = [line for line in headlines if line.any_row.unit == "fraction"]
    triplets = [line for line in fractions if line.any_row.display.by_group]
    others = [line for line in fractions if line not in triplets]
    titles = {
        "benchmarks": ("Benchmarks", others),
        "triplets": ("Hard negatives and hard positives", triplets),
    }
    return [picture(name, title, names, lines) for name, (title, lines) in titles.items() if lines]


def picture(name: str, title: str, names: Sequence[str], lines: Sequence[Line]) -> plot.Picture:
    """Bar chart of lines, with the symbols of the table."""
    indices = range(len(names))
    symbols = [[compare.SYMBOLS[line.verdict(index)] for index in indices] for line in lines]
    title = f"{title}: value, 95 % interval, chance (upright line); ▲▼ against {names[0]}"
    title += "; diamond: paper" if compare.has_paper(lines) else ""
    return compare_plot.grouped_bars(name, title, names, [line.rows for line in lines], symbols)


def group_bars(names: Sequence[str], lines: Sequence[Line]) -> list[plot.Picture]:
    """Bar charts of the groups of cases, one per benchmark."""
    pictures = []
    for benchmark in dict.fromkeys(line.benchmark for line in lines):
        of_benchmark = [line for line in lines if line.benchmark == benchmark]
        title = f"{benchmark}, group by group"
        pictures.append(picture(f"groups_{benchmark}", title, names, of_benchmark))
    return pictures


def training_curves(names: Sequence[str], runs: Sequence[Run]) -> list[plot.Picture]:
    """Training curves, one panel per metric that any run has logged."""
    pictures = []
    for metric, (title, options) in page.CURVES.items():
        curves = []
        for name, run in zip(names, runs, strict=True):
            rows = [row for row in run.metrics if isinstance(row.get(metric), int | float)]
            curves.append((name, [row["step"] for row in rows], [row[metric] for row in rows]))
        panel = compare_plot.curves(metric.replace("/", "_"), title, curves, **options)
        pictures += [panel] if panel else []
    return pictures
