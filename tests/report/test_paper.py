"""Tables of papers: seeds folded, the best in bold where a paired test says so, every form."""

import csv
import dataclasses
import io
import json
import re
import shutil
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

import vlc_jax
from tests.report.conftest import printed, write_json
from tests.support import helpers
from vlc_jax import errors, evaluators
from vlc_jax.report import __main__ as command
from vlc_jax.report import (
    compare,
    paper,
    pictures,
    read_workdir,
    table,
    to_html,
    to_latex,
    to_markdown,
    to_terminal,
)

SUBSETS = {"add_obj": 0.994, "swap_obj": 0.578, "replace_obj": 0.787}  # blind


def write_run(path, share, seed=0, count=200, benchmarks=("sugarcrepe",), trained=False, **config):
    """Of each subset the last cases are right: of a larger share all those of a smaller one."""
    config = {"seed": seed, "steps": 9, "init_from": f"runs/base_{seed}"} | config
    write_json(path / "config.json", config)
    if trained:
        helpers.write_rows(path / "metrics.jsonl", [{"step": 9}])
    right = [k >= round(count * (1 - share)) for k in range(count)]
    metrics = {
        f"accuracy/subset={subset}": evaluators.stats.proportion(np.array(right), 0.5)._asdict()
        | {"blind": blind}
        for subset, blind in SUBSETS.items()
    }
    rows = [
        {"id": f"{subset} {k}", "group": {"subset": subset}, "correct": is_right}
        for subset in SUBSETS
        for k, is_right in enumerate(right)
    ]
    for name in benchmarks:
        found = {
            "reader": name, "protocol": "choice", "version": "1", "options": {},
            "summary": ["accuracy"], "display": evaluators.display("choice"),
            "metrics": {"accuracy": next(iter(metrics.values()))} | metrics,
        }  # fmt: skip
        write_json(path / "evals" / name / "9.json", found)
        helpers.write_rows(path / "evals" / name / "9.scores.jsonl", rows)
    return path


def text_of(capsys, *words):
    assert command.main([*map(str, words)]) == 0
    return capsys.readouterr()


def cells(markdown):
    lines = [line for line in markdown.splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {name: rest for name, *rest in rows}


@pytest.fixture
def seeds(tmp_path):
    """Three seeds of two methods."""
    shares = {"clip_ft": (0.52, 0.6, 0.62), "hn": (0.7, 0.73, 0.76)}
    return [
        write_run(tmp_path / f"{name}_{seed}", share, seed, trained=True, losses=name)
        for name, values in shares.items()
        for seed, share in enumerate(values)
    ]


def test_seeds_are_one_row_with_the_interval_of_t(seeds, tmp_path, capsys):
    found = cells(text_of(capsys, *seeds, "--format", "markdown").out)
    # against seeds, a model has a test if it was not trained
    alone = write_run(tmp_path / "alone", 0.3)
    assert "**73.0**" in text_of(capsys, *seeds, alone, "--format", "markdown").out
    helpers.write_rows(alone / "metrics.jsonl", [{"step": 9}])
    assert "**" not in text_of(capsys, *seeds, alone, "--format", "markdown").out
    half = stats.sem([70, 73, 76]) * stats.t.ppf(0.975, 2)
    assert half == pytest.approx(7.45, abs=0.01)
    # in the order of SugarCrepe's tables
    assert found["model"] == [f"SugarCrepe {each} obj" for each in ("replace", "swap", "add")]
    assert found["chance"] == ["50.0"] * 3
    assert found["blind"] == ["78.7", "57.8", "99.4"]
    assert found["clip\\_ft (3 seeds)"] == ["58.0≈ ±13.1"] * 3
    assert found["hn (3 seeds)"] == ["**73.0**◇ ±7.5", "**73.0** ±7.5", "**73.0**◆ ±7.5"]


@pytest.mark.parametrize(
    ("change", "rows"),
    [
        ({}, {"a (2 seeds)"}),
        ({"steps": 10}, {"a_0", "a_1"}),
        ({"seed": 0}, {"a_0", "a_1"}),  # the same seed again
        ({"init_from": "runs/other"}, {"a_0", "a_1"}),
        ({"pretrain": {"seed": 1, "steps": 5}}, {"a (2 seeds)"}),
    ],
)
def test_only_runs_that_differ_in_their_seed_are_folded(tmp_path, capsys, change, rows):
    first = {"pretrain": {"seed": 0, "steps": 5}} if "pretrain" in change else {}
    runs = [write_run(tmp_path / "a_0", 0.6, 0, **first), write_run(tmp_path / "a_1", 0.7, 1)]
    config = json.loads((runs[1] / "config.json").read_text())
    write_json(runs[1] / "config.json", config | change)
    found = cells(text_of(capsys, *runs, "--format", "markdown").out.replace("\\", ""))
    assert found.keys() - {"model", "chance", "blind"} == rows


@pytest.mark.parametrize(
    ("shares", "is_bold"), [((0.6, 0.8), True), ((0.6, 0.61), False), ((0.6, 0.8, 0.8), False)]
)
def test_bold_is_what_the_sign_test_tells_from_every_other(tmp_path, capsys, shares, is_bold):
    runs = [write_run(tmp_path / f"r{k}", share, steps=k) for k, share in enumerate(shares)]
    text = text_of(capsys, *runs, "--format", "markdown").out
    assert ("**80.0**" in text) == ("Bold:" in text) == is_bold
    for run in runs:
        (run / "evals/sugarcrepe/9.scores.jsonl").unlink()
    assert "**" not in text_of(capsys, *runs, "--format", "markdown").out


def test_csv_json_and_pandas_hold_every_number_exactly(seeds, tmp_path, capsys, monkeypatch):
    runs = [*seeds, write_run(tmp_path / 'a, "b"', 1 / 3)]
    found = json.loads(text_of(capsys, *runs, "--format", "json").out)
    assert len(found) == 7 * 4
    read = [*csv.DictReader(io.StringIO(text_of(capsys, *runs, "--format", "csv").out))]
    assert read == [{k: "" if v is None else str(v) for k, v in row.items()} for row in found]
    written = json.loads((seeds[0] / "evals/sugarcrepe/9.json").read_text())
    for row in found[:4]:
        metric = written["metrics"][row["metric"]]
        names = {"value", "low", "high", "chance", "blind"}
        assert {name: row[name] for name in names} == {name: metric[name] for name in names}
    assert {(row["method"], row["seed"]) for row in found} == {
        *((name, seed) for name in ("clip_ft", "hn") for seed in range(3)), ('a, "b"', 0)
    }  # fmt: skip
    monkeypatch.setitem(sys.modules, "pandas", SimpleNamespace(DataFrame=list))
    assert vlc_jax.results(runs) == found
    assert vlc_jax.results(str(runs[-1])) == found[-4:]
    with pytest.raises(errors.UsageError, match="given twice"):
        vlc_jax.results(runs[:1] * 2)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(errors.UsageError, match="pip install pandas"):
        vlc_jax.results(runs)


HOSTILE = r"[*] 50% of $x_{1}^2$ & #~\, <|`-- é 中"


@pytest.fixture
def latex(seeds, tmp_path, capsys):
    """A table in two parts with a name of every special character."""
    names = [f"scenes_{k}" for k in range(7)]
    other = write_run(tmp_path / HOSTILE, 0.9, benchmarks=("sugarcrepe", *names))
    shown = text_of(capsys, *seeds, other, "--format", "latex")
    assert shown.err.splitlines()[0] == "one row: clip_ft_0, clip_ft_1, clip_ft_2"
    assert shown.err.splitlines()[-1] == f"hn_2: no result on {', '.join(names)}"
    return shown.out


def test_latex_is_a_table_whose_rows_have_their_cells(latex):
    body = "\n".join(line for line in latex.splitlines() if not line.startswith("%"))
    assert body.isascii() or {*re.findall(r"[^\x00-\x7f]", body)} == {"é"}
    bare = re.sub(r"\\[#$%&_{}]", "", body)
    assert bare.count("{") == bare.count("}")
    assert bare.count("$") % 2 == 0
    assert not {*"#%~"} & {*bare}
    tabulars = re.findall(r"\\begin{tabular}{l(r+)}\n(.*?)\\end{tabular}", bare, re.DOTALL)
    assert [len(kinds) for kinds, _ in tabulars] == [7, 3]
    for kinds, rows in tabulars:
        for row in re.findall(r"^(.*) \\\\$", rows, re.MULTILINE):
            spans = sum(int(width) - 1 for width in re.findall(r"\\multicolumn{(\d)}", row))
            assert row.count("&") + spans == len(kinds)
    for name in ("table", "tabular"):
        assert body.count(f"\\begin{{{name}}}") == body.count(f"\\end{{{name}}}")
    assert body.index("\\caption") < body.index("\\label") < body.index("\\toprule")


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no pdflatex")
def test_latex_compiles_with_booktabs_alone(latex, tmp_path):
    page = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}%s\\end{document}"
    (tmp_path / "t.tex").write_text(page % f"\n{latex}\n", "utf-8")
    words = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, timeout=60)
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "t.pdf").exists()


def test_out_is_a_file_and_what_cannot_be_shown_is_refused(seeds, tmp_path, capsys):
    file = tmp_path / "new folder" / "table.tex"
    assert text_of(capsys, *seeds, "--format", "latex", "--out", file).out == f"{file}\n"
    assert file.read_text() == text_of(capsys, *seeds, "--format", "latex").out
    write_json(tmp_path / "new" / "config.json", {})
    for words, reason in (
        ([tmp_path / "new"], "new has no results yet: vlc-jax --mode eval --workdir"),
        ([tmp_path / "none"], "no such folder"),
        ([tmp_path], "is no workdir of a run"),
        ([seeds[0], seeds[0]], "is given twice"),
        ([seeds[0], "--out", tmp_path], "--format writes a table, and --out"),
        ([seeds[0], "--cases"], "--cases has no"),
    ):
        assert command.main([*map(str, words), "--format", "csv"]) == 2
        shown = capsys.readouterr()
        assert (shown.out, reason in shown.err) == ("", True)


@pytest.mark.parametrize(
    ("low", "high", "blind", "sign"),
    [
        (0.55, 0.65, 0.549, ""),
        (0.55, 0.65, 0.55, "◇"),
        (0.55, 0.65, 0.65, "◇"),
        (0.55, 0.65, 0.651, "◆"),
        (0.55, 0.65, None, ""),
        (0.45, 0.55, 0.9, "≈"),
        (0.3, 0.4, 0.9, "≺"),
    ],
)
def test_every_form_has_the_same_mark_for_the_same_thing(tmp_path, low, high, blind, sign):
    metric = {"value": (low + high) / 2, "low": low, "high": high, "chance": 0.5, "blind": blind}
    (tmp_path / "evals").mkdir()
    row = {"benchmark": "b", "protocol": "choice", "step": 5, "metrics": {"accuracy": metric}}
    run = read_workdir.Run(tmp_path, evaluations=[read_workdir.Evaluation("b", [row], [])])
    lines = compare.lines([{"b": row}])
    tables = [
        table.to_table(table.rows([row])),
        compare.to_table(["r"], lines),
        compare.to_table(["r"], lines, is_narrow=True)._replace(caption=""),
        *paper.to_tables(["r"], [run]),
    ]
    marks = {*"".join(mark.sign for mark in table.MARKS.values())}
    for each in tables:
        each = each._replace(caption="") if each.style != "paper" else each
        terminal = printed(to_terminal.to_rich(each), 300)
        for text in (to_html.render([each]), to_markdown.table(each), terminal):
            assert marks & {*text} == {*sign}
        in_latex = {mark for mark in marks if to_latex.SIGNS[mark] in to_latex.render([each])}
        assert in_latex == {*sign}
    assert pictures.WORDS.get(lines[0].rows[0].verdict, "").startswith(sign)
    assert not marks & {*"".join([*compare.SYMBOLS.values(), *table.LABELS.values()])}
    legends = (table.null_legend(table.rows([row])), compare.legend(["r"], lines))
    for legend in (*legends, tables[-1].caption):
        assert [key for key in table.MARKS if table.MARKS[key].meaning in legend] == [
            key for key in table.MARKS if table.MARKS[key].sign == sign
        ]


def test_ranks_are_better_small_and_scores_have_no_best():
    row = table.Row("b", "choice", "m", 1.0, 0.9, 1.1, 0.5, 9, 0.0, "rank", 5)
    found = [paper.Cell(dataclasses.replace(row, value=x), None, True) for x in (3.0, 2.0)]
    rows = [paper.Method(name, (k,)) for k, name in enumerate("ab")]

    def best(cells):
        return paper._best(rows, cells, lambda one, other: True)

    assert best(found) == 1
    assert (
        best([cell._replace(row=dataclasses.replace(row, unit="score")) for cell in found]) is None
    )
    assert best(found[:1]) is None
    assert best([found[0], found[1]._replace(is_comparable=False)]) is None
