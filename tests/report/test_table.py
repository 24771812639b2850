import pytest

from tests.report.conftest import made_up, metric, printed
from vlc_jax.report import table, to_markdown, to_terminal


def markdown(rows):
    return to_markdown.table(table.to_table(rows))


def shown(rows, width=80):
    return printed(to_terminal.to_rich(table.to_table(rows)), width)


@pytest.mark.parametrize(
    ("low", "high", "chance", "unit", "verdict"),
    [
        (0.55, 0.65, 0.5, "fraction", "above"),
        (0.45, 0.55, 0.5, "fraction", "at"),
        (0.5, 0.55, 0.5, "fraction", "at"),
        (0.40, 0.49, 0.5, "fraction", "below"),
        (3.0, 4.0, 50.5, "rank", "above"),
        (60.0, 70.0, 50.5, "rank", "below"),
        (None, 0.6, 0.5, "fraction", ""),
        (0.4, 0.6, None, "fraction", ""),
    ],
)
def test_verdict_compares_the_interval_with_chance(low, high, chance, unit, verdict):
    (row,) = table.rows([made_up(metrics={"m": metric(0.5, low, high, chance, unit=unit)})])
    assert row.verdict == verdict


@pytest.mark.parametrize("name", ["brittleness", "brittleness_macro", "brittleness/size"])
def test_brittleness_is_better_below_chance(name):
    found = {"low": metric(0.1, 0.05, 0.15, 1 / 3), "high": metric(0.6, 0.55, 0.65, 1 / 3)}
    for kind, verdict in (("low", "above"), ("high", "below")):
        (row,) = table.rows([made_up(metrics={name: found[kind]})], everything=True)
        assert row.verdict == verdict


def test_summary_decides_which_metrics_are_shown_and_in_which_order():
    metrics = {"a/x": metric(), "a": metric(), "b": metric(), "c": metric()}
    with_summary = made_up(metrics=metrics, summary=["c", "a", "gone"])
    assert [row.metric for row in table.rows([with_summary])] == ["c", "a"]
    assert [row.metric for row in table.rows([made_up(metrics=metrics)])] == ["a", "b", "c"]
    everything = table.rows([with_summary], everything=True)
    assert [row.metric for row in everything] == ["a/x", "a", "b", "c"]


def test_protocols_are_kept_together_in_the_order_given():
    given = [made_up("z"), made_up("p", "pairs"), made_up("r", "retrieval"), made_up("a")]
    assert [row.benchmark for row in table.rows(given)] == ["r", "z", "a", "p"]


@pytest.mark.parametrize(
    ("protocol", "metrics", "labels"),
    [
        ("choice", "accuracy other", ["accuracy"]),
        ("retrieval", "image_to_text_r1 image_to_text_r5 text_to_image_r1",
         ["image→text R@1", "text→image R@1"]),
        ("triplet", "augmented_accuracy original_accuracy brittleness mean_score_correct",
         ["augmented", "original", "brittleness ↓"]),
    ],
)  # fmt: skip
def test_headlines_are_one_per_benchmark_both_directions_and_all_of_triplets(
    protocol, metrics, labels
):
    found = made_up("b", protocol, metrics=dict.fromkeys(metrics.split(), metric()))
    assert [row.label for row in table.headlines([found])] == labels


@pytest.mark.parametrize("broken", [None, "0.5", {}, {"value": None}, {"value": float("nan")}])
def test_a_metric_without_a_number_gives_no_row(broken):
    rows = table.rows([made_up(metrics={"a": broken, "b": metric()})])
    assert [row.metric for row in rows] == ["b"]


def test_terminal_table_fits_80_columns_with_every_number_whole():
    wide = metric(0.4551, 0.3, 0.51, 0.5, count=28_748)
    rows = table.rows(
        [
            made_up("scenes_held_attribute_swap", metrics={"accuracy": wide}),
            made_up("scenes_retrieval", "retrieval", metrics={"image_to_text_r10": metric()}),
        ]
    )
    text = shown(rows)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    line = next(line for line in text.splitlines() if "scenes_held_attribute_swap" in line)
    assert line.split() == [
        "scenes_held_attribute_swap", "accuracy", "45.5", "30.0–51.0", "≈", "50.0", "28,748", "1.0",
    ]  # fmt: skip
    assert "image→text R@10  60.0" in text


def test_markdown_has_the_same_numbers_and_its_cells_hold():
    rows = table.rows([made_up(metrics={"accuracy/a|b*c": metric(), "rank": metric(unit="rank")})])
    assert not rows[:-1]  # the group is left out
    rows = table.rows([made_up(metrics={"accuracy/a|b*c": metric()})], everything=True)
    line = markdown(rows).splitlines()[2]
    assert line == "| `b` | accuracy: a\\|b\\*c | **60.0** | 55.0–65.0 | 50.0 | 400 | 1.0 |"


@pytest.mark.parametrize(
    ("unit", "numbers", "texts"),
    [
        ("rank", (12.25, 11.0, 13.5), ("12.2", "11.0–13.5")),
        ("score", (-0.2341, -0.25, 0.1), ("-0.234", "-0.250–0.100")),
    ],
)
def test_ranks_and_scores_are_no_percentages(unit, numbers, texts):
    (row,) = table.rows([made_up(metrics={"m": metric(*numbers, None, ties=None, unit=unit)})])
    assert (table.number(row, row.value), table.interval(row)) == texts
    assert table.number(row, None) == table.percent(row.ties) == "–"
    assert row.verdict == ""


@pytest.mark.parametrize(
    ("metrics", "columns"),
    [
        ([{}], []),
        ([{"ceiling": 1.0}, {"ceiling": None}], []),
        ([{"ceiling": 1.0}, {"ceiling": 0.6}], ["ceiling"]),
        ([{}, {"blind": 0.5}], ["blind"]),
        ([{"human": 0.97, "blind": 0.9}], ["blind", "human"]),
    ],
)
def test_columns_that_say_nothing_are_left_out(metrics, columns):
    results = [made_up(f"b{n}", metrics={"accuracy": metric(**m)}) for n, m in enumerate(metrics)]
    rows = table.rows(results)
    assert table.nulls_of(rows) == columns
    header = markdown(rows).splitlines()[0]
    assert [name for name in table.NULLS if f" {name} " in header] == columns
    legend = table.null_legend(rows)
    assert [name for name in table.NULLS if f"{name.capitalize()}: " in legend] == columns
