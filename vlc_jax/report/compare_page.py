"""Facts of several runs -> comparison.html and comparison.md."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vlc_jax.report import compare, facts, page, plot, table
from vlc_jax.report.compare import Line
from vlc_jax.report.workdir import Run


def write(runs: Sequence[Run], folder: Path) -> Path:
    """Writes both pages and their figures into `folder`; returns the path of comparison.html."""
    return page.render(folder, "comparison", make_context(runs))


def make_context(runs: Sequence[Run]) -> dict[str, Any]:
    """Everything the templates show."""
    names = compare.names([run.path for run in runs])
    results = compare.newest(runs)
    lines, groups = compare.lines(results), compare.by_group(results)
    every = compare.lines(results, everything=True)
    return {
        "names": names,
        "styles": [plot.run_style(place)[0] for place in range(len(runs))],
        "statuses": [facts.status(run) for run in runs],
        "paths": [run.path for run in runs],
        "lines": lines,
        "groups": groups,
        "every": every,
        "tables": {
            "lines": compare.to_markdown(names, lines),
            "groups": compare.to_markdown(names, groups),
        },
        "legend": compare.legend(names),
        "other_cases": compare.other_cases(results),
        "stale": compare.stale(names, results),
        "pictures": {
            "benchmarks": bars(names, lines),
            "groups": group_bars(names, groups),
            "training": training_curves(names, runs),
        },
        "config_diff": compare.config_differences(runs),
        "without_config": [n for n, run in zip(names, runs, strict=True) if not run.config],
        "facts": facts.side_by_side(
            [what_ran(run, of_run) for run, of_run in zip(runs, results, strict=True)]
        ),
        "notes": [(n, note) for n, run in zip(names, runs, strict=True) for note in run.notes],
        "number": table.number,
        "interval": table.interval,
        "difference": compare.difference_text,
    }


def what_ran(run: Run, results: dict[str, dict[str, Any]]) -> dict[str, str]:
    """`facts.facts` and what only a comparison needs, by name."""
    status = facts.status(run)
    steps = sorted({result["step"] for result in results.values()})
    found = {
        "Workdir": str(run.path),
        "Status": f"{status['word']}. {status['text']}",
        "Started from": str(run.config.get("init_from") or ""),
        "Evaluated at step": ", ".join(f"{step:,}" for step in steps),
        **dict(facts.facts(run)),
        "Command": facts.command(run.env.get("command")),
    }
    return {name: value for name, value in found.items() if value}


def bars(names: Sequence[str], lines: Sequence[Line]) -> list[plot.Picture]:
    """The headlines, those of triplets in a figure of their own."""
    seen: set[tuple[str, str]] = set()
    headlines = []
    for line in lines:
        key = (line.benchmark, line.metric if line.metric in table.BESIDE else "")
        if key not in seen and line.any_row.unit == "fraction":
            headlines.append(line)
        seen.add(key)
    triplets = [line for line in headlines if line.any_row.protocol == "triplet"]
    others = [line for line in headlines if line not in triplets]
    titles = {
        "benchmarks": ("Benchmarks: value, 95 % interval, chance (upright line)", others),
        "triplets": ("Hard negatives and hard positives: value, 95 % interval, chance", triplets),
    }
    return [
        plot.grouped_bars(name, title, names, [line.rows for line in shown])
        for name, (title, shown) in titles.items()
        if shown
    ]


def group_bars(names: Sequence[str], lines: Sequence[Line]) -> list[plot.Picture]:
    """A figure per triplet benchmark, all its groups."""
    pictures = []
    for benchmark in dict.fromkeys(line.benchmark for line in lines):
        rows = [line.rows for line in lines if line.benchmark == benchmark]
        title = f"{benchmark}, group by group: value, 95 % interval, chance"
        pictures.append(plot.grouped_bars(f"groups_{benchmark}", title, names, rows))
    return pictures


def training_curves(names: Sequence[str], runs: Sequence[Run]) -> list[plot.Picture]:
    """One panel per training metric that was logged in any run."""
    pictures = []
    for metric, (title, options) in page.CURVES.items():
        curves = []
        for name, run in zip(names, runs, strict=True):
            rows = [row for row in run.metrics if isinstance(row.get(metric), int | float)]
            curves.append((name, [row["step"] for row in rows], [row[metric] for row in rows]))
        picture = plot.curves(metric.replace("/", "_"), title, curves, **options)
        pictures += [picture] if picture else []
    return pictures
