import io
import re

import pytest
import rich.console
import rich.measure

from tests.report.conftest import made_up, metric, printed, write_json, write_workdir
from tests.report.pages import assert_alone, figure_size
from vlc_jax import report
from vlc_jax.report import __main__ as command
from vlc_jax.report import compare, page, read_workdir, to_markdown, to_terminal
from vlc_jax.report.blocks import Table


def between(low, high, **more):
    return metric((low + high) / 2, low, high, **more)


def result(*arguments, metrics=None, **more):
    metrics = {"accuracy": between(0.5, 0.6)} if metrics is None else metrics
    return made_up(*arguments, metrics=metrics, **more)


def of(*runs):
    """Each run's results by benchmark, as `compare.newest_results` gives them."""
    return [{one["benchmark"]: one for one in results} for results in runs]


def terminal_table(names, runs):
    return to_terminal.to_rich(compare.to_table(names, compare.lines(runs), is_narrow=True))


@pytest.mark.parametrize(
    ("name", "first", "other", "verdict"),
    [
        ("accuracy", (0.50, 0.60), (0.61, 0.70), "better"),
        ("accuracy", (0.50, 0.60), (0.60, 0.70), ""),  # one value in common
        ("accuracy", (0.50, 0.60), (0.55, 0.58), ""),
        ("accuracy", (0.50, 0.60), (0.40, 0.49), "worse"),
        ("brittleness", (0.50, 0.60), (0.40, 0.49), "better"),
        ("brittleness/size", (0.50, 0.60), (0.70, 0.80), "worse"),
    ],
)
def test_a_mark_says_that_the_intervals_have_no_value_in_common(name, first, other, verdict):
    runs = of(*([result(metrics={name: between(*interval)})] for interval in (first, other)))
    (line,) = compare.lines(runs, everything=True)
    assert (line.verdict(0), line.verdict(1)) == ("", verdict)
    assert line.difference(1) == pytest.approx(sum(other) / 2 - sum(first) / 2)
    assert line.difference(0) is None
    assert compare.difference_text(line, 0) == ""
    points = f"{sum(other) * 50 - sum(first) * 50:+.1f} {compare.SYMBOLS[verdict]}".strip()
    assert compare.difference_text(line, 1) == points.replace("-", "−")


@pytest.mark.parametrize(
    ("fields", "verdict"),
    [({"unit": "rank"}, "worse"), ({"unit": "score"}, ""), ({"low": None}, "")],
)
def test_ranks_are_better_when_small_and_scores_are_neither(fields, verdict):
    runs = of(
        [result(metrics={"m": between(1.0, 2.0) | fields})],
        [result(metrics={"m": between(5.0, 6.0) | fields | {"value": 5.5}})],
    )
    assert compare.lines(runs)[0].verdict(1) == verdict


OTHER = {
    "options": {"options": {"split": "test"}},
    "version": {"version": "2"},
    "protocol": {"protocol": "pairs"},
    "cases": {"metrics": {"accuracy": between(0.8, 0.9, count=399)}},
}


@pytest.mark.parametrize("kind", OTHER)
def test_what_was_evaluated_on_other_cases_is_said_and_not_compared(kind):
    far = {"accuracy": between(0.8, 0.9)}
    runs = of([result()], [result(metrics=far)], [result(metrics=far) | OTHER[kind]])
    (line,) = compare.lines(runs)
    assert [line.verdict(place) for place in range(3)] == ["", "better", "other cases"]
    assert line.difference(2) is None
    assert compare.difference_text(line, 2) == "≠"
    ((benchmark, field, values),) = compare.other_cases(runs)
    assert benchmark == "b"
    assert field.startswith(kind)
    assert values[0] == values[1] != values[2]
    assert compare.other_cases(runs[:2]) == []


def test_a_run_without_the_benchmark_has_no_number_and_the_first_one_none_to_compare_with():
    runs = of([], [result()], [result(metrics={"accuracy": between(0.9, 0.95)})])
    (line,) = compare.lines(runs)
    assert line.rows[0] is None
    assert [line.verdict(place) for place in range(3)] == ["", "", ""]
    assert line.difference(2) is None
    assert "| – | **55.0**≈ 50.0–60.0 | **92.5** 90.0–95.0 |" in to_markdown.table(
        compare.to_table("abc", [line])
    )


def test_lines_of_a_benchmark_stay_together_in_the_order_of_protocols():
    more = result("c", metrics={"accuracy": between(0, 1), "b": between(0, 1)})
    runs = of([result("c"), result("p", "pairs")], [result("r", "retrieval"), more])
    found = [(line.benchmark, line.metric) for line in compare.lines(runs)]
    assert found == [("r", "accuracy"), ("c", "accuracy"), ("c", "b"), ("p", "accuracy")]


def triplet(*groups):
    names = ("augmented_accuracy", "original_accuracy", "brittleness")
    metrics = {name: between(0.2, 0.3) for name in names}
    metrics |= {f"{name}/{group}": between(0.2, 0.3) for name in names for group in groups}
    return result("t", "triplet", metrics=metrics | {"brittleness_macro": between(0.2, 0.3)},
                  summary=list(names))  # fmt: skip


def test_triplets_are_shown_group_by_group():
    found = compare.by_group(of([triplet("size", "relation")], [triplet("size", "colour")]))
    assert [line.any_row.label for line in found] == [
        f"{words}: {group}"
        for group in ("size", "relation", "colour")
        for words in ("augmented", "original", "brittleness ↓")
    ]
    assert [row is None for row in found[3].rows] == [False, True]
    assert compare.by_group(of([triplet("size")], [result()])) == []


def test_headlines_are_those_of_any_run():
    found = compare.headlines(of([result("t")], [triplet("size"), result("u")]))
    assert [(line.benchmark, line.metric) for line in found] == [
        ("t", "accuracy"), ("t", "augmented_accuracy"), ("t", "original_accuracy"),
        ("t", "brittleness"), ("u", "accuracy"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("paths", "names"),
    [
        (("runs/clip", "elsewhere/hn"), ["clip", "hn"]),
        (("runs/clip/0", "runs/hn/0", "runs/hn/1"), ["clip/0", "hn/0", "hn/1"]),
        (("x/hn", "x/hn/hn"), ["hn", "hn/hn"]),
    ],
)
def test_names_are_short_and_different(tmp_path, paths, names):
    assert compare.names([tmp_path / path for path in paths]) == names


def configured(tmp_path, *configs):
    return [read_workdir.Run(tmp_path, config=config) for config in configs]


def test_only_fields_that_differ_are_shown(tmp_path):
    runs = configured(tmp_path, {"a": {"b": 1, "c": 2}}, {}, {"a": {"b": 1, "c": 3}, "d": [4]})
    assert compare.config_differences(runs) == [("a.c", ["2", "", "3"]), ("d", ["", "", "[4]"])]


def test_a_run_that_comes_first_is_one_field_unless_it_differs(tmp_path):
    plain, first = {"pretrain": {}, "a": 1}, {"a": 1, "b": {"c": 2}}
    runs = configured(tmp_path, plain, {"pretrain": first, "a": 1})
    assert compare.config_differences(runs) == [("pretrain", ["{}", "a config of 2 fields"])]
    other = {"pretrain": first | {"a": 5}, "a": 1}
    runs = configured(tmp_path, plain, {"pretrain": first, "a": 1}, other)
    assert compare.config_differences(runs)[1:] == [("pretrain.a", ["", "1", "5"])]
    assert compare.config_differences(runs[1:]) == [("pretrain.a", ["1", "5"])]


def test_terminal_table_cuts_no_number_however_many_runs():
    names = [f"run_{n}" for n in range(6)]
    runs = of(*([result("scenes_held_attribute_swap"), triplet("a")] for _ in names))
    shown = terminal_table(names, runs)
    console = rich.console.Console(file=io.StringIO(), width=300)
    width = rich.measure.Measurement.get(console, console.options, shown).minimum
    text = printed(shown, width)
    assert width < 110
    assert "…" not in text
    assert text.count("55.0") == 6
    assert text.count("20.0–30.0") == 3 * 6


def test_nulls_stand_beside_runs_and_a_narrow_terminal_cuts_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    low = {"clip": 0.5512, "hp_hn": 0.7534}
    nulls = {"blind": 0.6543, "ceiling": 0.6934, "paper": 0.6111}
    for name, at in low.items():
        metrics = {"accuracy_of_many_phenomena": between(at, at + 0.1) | nulls}
        write_json(tmp_path / name / "evals/b/5.json", result(metrics=metrics))
    paths = [tmp_path / name for name in low]
    report.print_comparison(paths)
    text = capsys.readouterr().out
    for number in ("65.4", "69.3", "61.1", "60.1◆", "80.3▲", "55.1–65.1", "75.3–85.3"):
        assert number in text
    page = report.write_comparison(paths, tmp_path).with_suffix(".md").read_text()
    assert "| chance | blind | ceiling | paper | − paper |" in page
    assert "**60.1**◆ 55.1–65.1" in page
    assert "80.3**◆" not in page


def test_the_other_runs_differ_from_the_first_and_the_legend_says_so():
    runs = of([result()], [result(metrics={"accuracy": between(0.8, 0.9)})])
    text = " ".join(printed(terminal_table(["clip", "[b]hn"], runs), 80).split())
    assert "clip [b]hn" in text
    assert "b 50.0 55.0≈ 50.0–60.0 85.0▲ 80.0–90.0" in text
    assert "worse than clip: the two intervals have no value in common" in text


@pytest.fixture(scope="module")
def compared(tmp_path_factory):
    """Two finished runs, one of them on another split of one benchmark, and one that failed; a
    folder `pretrain` in the second. (folder, page, markdown), not to be changed.
    """
    folder = tmp_path_factory.mktemp("runs")
    first, second = write_workdir(folder / "clip"), write_workdir(folder / "hn")
    write_workdir(second / "pretrain", is_small=True)
    config = read_workdir.read(first).config
    changed = {"steps": 150, "init_from": "runs/clip", "losses": {"svlc": {"weight": 1.0}}}
    write_json(second / "config.json", config | changed)
    name = "scenes_objects"
    file = second / "evals" / name / "512.json"
    written = read_workdir.newest_results(second)
    written = next(one for one in written if one["benchmark"] == name)
    write_json(file, written | {"options": {"split": "test"}})
    failed = write_workdir(folder / "fail|ed", "failed", is_small=True)
    html = report.write_comparison([first, second, failed], folder / "new" / "out")
    assert html == folder / "new" / "out" / "comparison.html"
    return html.parent, html.read_text(), html.with_suffix(".md").read_text()


def test_every_picture_of_the_markdown_exists(compared):
    assert_alone(compared[1])
    files = re.findall(r"!\[.*?\]\((.*?)\)", compared[2])
    assert {"comparison/benchmarks.svg", "comparison/triplets.svg"} < set(files)
    assert {"comparison/groups_scenes_swap.svg", "comparison/train_loss.svg"} < set(files)
    for file in files:
        assert figure_size(compared[0] / file)


def test_both_pages_tell_what_differs_and_what_does_not_compare(compared):
    for text in compared[1:]:
        plain = text.replace("\\", "")
        other = plain[
            plain.index("Not evaluated on the same cases") : plain.index("Newest evaluation")
        ]
        assert "scenes_objects" in other
        assert "options.split" in other
        assert "scenes_swap" not in other
        differs = plain[plain.index("What differs between the configs") :]
        differs = differs[: differs.index("What ran")]
        for field in ("steps", "losses.svlc.weight", "init_from"):
            assert field in differs
        assert "batch_size" not in differs
        assert f"vlc-jax report {compared[0].parents[1] / 'clip'} " in plain
        assert "hn --cases" in plain
        for words in ("step 271 is not finite", "Started from", "augmented: size", "fail|ed"):
            assert words in plain


def test_broken_and_missing_files_are_noted_with_the_name_of_the_run(tmp_path):
    runs = [write_workdir(tmp_path / name, is_small=True) for name in ("a", "b")]
    (runs[1] / "config.json").write_text("{")
    (runs[0] / "metrics.jsonl").unlink()
    page = report.write_comparison(runs).read_text()
    assert "Without a config that can be read: b." in page
    notes = page[page.index("Files that could not be used") :]
    assert "a: metrics.jsonl is missing" in notes
    assert "b: config.json cannot be read" in notes
    assert "No benchmark has been evaluated yet." in page


def test_command_prints_the_table_and_the_path(tmp_path, capsys):
    runs = [str(write_workdir(tmp_path / name, is_small=True)) for name in ("a", "b")]
    write_json(tmp_path / "a" / "evals" / "x" / "5.json", result("x"))
    far = {"accuracy": between(0.8, 0.9)}
    write_json(tmp_path / "b" / "evals" / "x" / "9.json", result("x", metrics=far))
    write_json(tmp_path / "b" / "evals" / "y" / "5.json", result("y"))
    assert command.main([*runs, "--out", str(tmp_path / "out")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == str(tmp_path / "out" / "comparison.html")
    (x,) = (line for line in lines if line.split()[:1] == ["x"])
    assert x.split() == ["x", "50.0", "55.0≈", "50.0–60.0", "85.0▲", "80.0–90.0"]
    assert "b: evaluated at step 9, but y at step 5." in lines


def test_what_ran_says_where_a_run_started_and_when_it_was_evaluated(tmp_path):
    run = read_workdir.Run(tmp_path, config={"init_from": "runs/clip"})
    found = page._overview(run, {"b": result(), "c": result("c", step=1500)})
    assert found["Evaluated at step"] == "5, 1,500"
    assert found["Started from"] == "runs/clip"
    content = page.blocks([read_workdir.Run(tmp_path / "a"), run], ())
    (ran,) = (block for block in content if isinstance(block, Table) and block.header[0] == "")
    assert [name.text for name, *_ in ran.rows] == ["Workdir", "Started from"]
    assert ran.rows[1][1:] == ["–", "runs/clip"]
