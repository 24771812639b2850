"""Published values beside ours: what is compared, what is left out, and why."""

import pytest

from tests.report.conftest import made_up, metric, write_json
from tests.report.pages import Page
from vlc_jax import report
from vlc_jax.report import __main__ as command
from vlc_jax.report import compare, pictures, plot, published, table, to_markdown

CLIP, LLAVA, L14 = "CLIP ViT-B/32", "LLaVA-1.5-7B", "CLIP ViT-L/14-336"


def result(name, protocol, metrics, **more):
    summary = [name for name in metrics if "/" not in name and not name.endswith("_macro")]
    return made_up(name, protocol, metrics=metrics, **{"reader": name, "summary": summary} | more)


def swap(**more):
    names = ("augmented_accuracy", "original_accuracy", "brittleness")
    return result("swap", "triplet", {name: metric(count=28_748) for name in names}, **more)


def test_a_value_of_the_same_metric_protocol_and_count_stands_beside_ours_with_its_source():
    results = [swap()]
    sentences = published.add(CLIP, results)
    rows = {row.metric: row for row in table.rows(results)}
    assert rows["original_accuracy"].paper == 0.605
    assert rows["brittleness"].paper == 0.217
    text = to_markdown.table(table.to_table([*rows.values()]))
    assert "| 55.0–65.0 | 60.5 | −0.5 | 50.0 |" in text
    assert sentences == [f"Paper: {CLIP}. Kamath et al., ECCV 2024, table 1: swap."]


def test_another_protocol_is_refused_and_said():
    """One paper's LLaVA generates an answer, ours would score captions."""
    results = [result("whatsup_a", "choice", {"accuracy": metric(count=412)})]
    sentences = published.add(LLAVA, results)
    assert [row.paper for row in table.rows(results)] == [None]
    assert sentences == [
        f"Not compared with {LLAVA}: whatsup_a, accuracy: published under the protocol "
        "keywords, here under choice."
    ]
    probe = [result("cifar10", "choice", {"accuracy": metric(count=10_000)})]
    assert "linear_probe and zeroshot, here under choice" in published.add(CLIP, probe)[0]


def two_way(**details):
    metrics = {
        "accuracy/subset=left_right": metric(count=206),
        "pair_accuracy/subset=left_right": metric(count=103),
    }
    summary = {"summary": [*metrics], "details": details}
    return result("whatsup_a_two_way", "choice", metrics, **summary)


@pytest.mark.parametrize(
    ("model", "prompt", "values"),
    [
        (L14, {}, [0.49, 0.019]),
        (LLAVA, {"question": 'Is it "{}"?', "eos": True}, [0.966, 0.932]),
        (LLAVA, {"question": 'Is it "{}"?'}, [0.966, 0.932]),  # that of the tokenizer
        (LLAVA, {"question": 'Is it "{}"?', "eos": False}, [None, None]),
        (LLAVA, {"question": ""}, [None, None]),  # the caption's own probability
    ],
)
def test_two_way_whatsup_stands_beside_what_was_asked_alike(model, prompt, values):
    results = [two_way(prompt=prompt) if prompt else two_way()]
    sentences = published.add(model, results)
    assert [row.paper for row in table.rows(results)] == pytest.approx(values)
    if None in values:
        assert "published by VQAScore with its end token, here otherwise" in sentences[0]


def test_answers_in_words_stand_beside_those_of_the_paper():
    metrics = {"accuracy": metric(count=412), "set_accuracy": metric(count=103)}
    results = [result("whatsup_a", "keywords", metrics, details={"prompt": {"question": ""}})]
    published.add(LLAVA, results)
    assert [row.paper for row in table.rows(results)] == pytest.approx([0.621, 0.146])


def test_another_number_of_cases_is_refused_and_said():
    results = [swap()]
    results[0]["metrics"]["brittleness"]["count"] = 100
    (_, refused) = published.add(CLIP, results)
    assert refused == (
        f"Not compared with {CLIP}: swap, brittleness ↓: published of 28,748 decisions, "
        "here of 100."
    )


def test_a_count_that_nobody_published_is_said():
    results = [result("vg_relation", "choice", {"accuracy_macro": metric(count=9)})]
    assert "vg_relation (number of cases not published)" in published.add(CLIP, results)[0]
    assert table.rows(results)[0].paper == 0.59


def test_a_paper_comes_before_a_rerun_by_others():
    ours = result("winoground", "pairs", {"text_score": metric(count=400)})
    values = [v for v in published.model_values(L14) if v.benchmark == "winoground"]
    published.add(L14, [ours])
    assert ours["metrics"]["text_score"]["paper"] == values[0].number == 0.278
    ours = result("flickr30k_order", "choice", {"accuracy": metric(count=5000)})
    (sentence, *_) = published.add(CLIP, [ours])
    assert "ICLR 2023" in sentence


def test_values_of_groups_and_of_their_mean_are_shown_and_explain_the_headline():
    """SugarCrepe is published by subset, REPLACE as the mean of its two."""
    counts = (("subset=swap_obj", 245), ("add_att", 692))
    groups = {f"accuracy/{group}": metric(count=count) for group, count in counts}
    sugarcrepe = result("sugarcrepe", "choice", {"accuracy": metric(count=937)} | groups)
    replace = result("replace", "triplet", {
        "original_accuracy": metric(count=27_443), "original_accuracy_macro": metric(count=27_443),
    })  # fmt: skip
    sentences = published.add(CLIP, [sugarcrepe, replace])
    shown = [(row.metric, row.paper) for row in table.rows([sugarcrepe, replace])]
    assert [name for name, value in shown if value is None] == ["accuracy", "original_accuracy"]
    assert dict(shown)["accuracy/add_att"] == 0.6879
    assert dict(shown)["accuracy/subset=swap_obj"] == pytest.approx(0.6122, abs=1e-4)
    assert dict(shown)["original_accuracy_macro"] == 0.616
    assert not [sentence for sentence in sentences if sentence.startswith("Not compared")]


def test_a_metric_that_nobody_published_names_those_that_are():
    results = [result("mmvp", "pairs", {"pair_accuracy": metric(count=150)})]
    (sentence,) = published.add(L14, results)
    assert sentence.endswith("published is image_score (pairs), relaxed_pair (pairs).")


def test_a_benchmark_is_found_under_the_name_of_its_reader_and_without_it_is_named():
    results = [swap(benchmark="swap@1234"), swap(benchmark="mine"), swap(benchmark="x", reader="y")]
    sentences = published.add(CLIP, results)
    assert sentences == [
        f"Paper: {CLIP}. Kamath et al., ECCV 2024, table 1: swap@1234, mine.",
        f"No published value of {CLIP}: x.",
    ]


def compared():
    runs = [swap(), swap()]
    runs[1]["metrics"]["original_accuracy"] |= metric(0.55, 0.5, 0.6, count=28_748)
    runs[1]["metrics"]["augmented_accuracy"]["count"] = 7
    published.add(CLIP, runs)
    return compare.lines([{"swap": run} for run in runs])


def test_a_comparison_has_the_difference_of_every_run_where_its_cases_are_the_papers():
    by_metric = {line.metric: line for line in compared()}
    assert by_metric["original_accuracy"].paper == "60.5"
    assert by_metric["original_accuracy"].paper_differences == "−0.5 / −5.5"
    assert by_metric["augmented_accuracy"].paper_differences == "+10.4 / –"
    text = to_markdown.table(compare.to_table(["a", "b"], compared()))
    assert "| 50.0 | 60.5 | −0.5 / −5.5 |" in text
    assert len({line.count("|") for line in text.splitlines()}) == 1


def test_bars_carry_the_papers_value_as_a_mark(monkeypatch):
    drawn, real = [], plot.draw

    def draw(name, title, description, size, paint):
        def painted(axes):
            paint(axes)
            drawn.extend(axes.lines)

        return real(name, title, description, size, painted)

    monkeypatch.setattr(plot, "draw", draw)
    picture = pictures._bars("b", "Benchmarks", ["a", "b"], compared())
    marks = {line.get_xdata()[0] for line in drawn if line.get_fillstyle() == "none"}
    assert sorted(marks) == [0.217, 0.496, 0.605]
    assert picture.title.endswith("diamond: paper")
    assert "60.0 percent, chance 50.0 (paper 60.5)" in picture.description


@pytest.mark.usefixtures("blank_figures")
def test_the_command_shows_them_in_both_pages_and_the_terminal(make_workdir, tmp_path, capsys):
    first = make_workdir()
    write_json(first / "evals" / "swap" / "5.json", swap())
    assert command.main([str(first), "--published", CLIP]) == 0
    printed = capsys.readouterr().out
    assert "paper − paper" in " ".join(printed.split())
    assert "Kamath et al., ECCV 2024, table 1: swap." in printed
    for file in (first / "report.html", first / "report.md"):
        assert "60.5" in file.read_text()
        assert "Kamath et al., ECCV 2024" in file.read_text()
    second = tmp_path / "second"
    second.mkdir()
    write_json(second / "DONE", {"step": 5})
    arguments = [str(first), str(second), "--out", str(tmp_path / "out")]
    assert command.main([*arguments, "--published", CLIP]) == 0
    assert "−0.5 / –" in capsys.readouterr().out
    html = (tmp_path / "out/comparison.html").read_text()
    parsed = Page(html)
    assert parsed.crossed == parsed.open == []
    assert "−0.5 / –" in html
    assert command.main(arguments) == 0
    assert "Kamath" not in (tmp_path / "out/comparison.html").read_text()


def test_an_unknown_model_is_refused_with_the_nearest_before_anything_is_written(
    make_workdir, capsys
):
    path = make_workdir()
    assert command.main([str(path), "--published", "clip vit b/32"]) == 2
    captured = capsys.readouterr()
    assert "models: 'CLIP ViT-B/32'" in captured.err
    assert captured.err.count("\n") == 1
    assert not (path / "report.html").exists()
    with pytest.raises(report.UnknownModelError):
        report.write(path, published="none")


def test_values_of_people_stand_beside_ours_whatever_their_number_of_cases():
    metrics = {"augmented_accuracy_macro": metric(count=27443), "augmented_accuracy": metric()}
    ours = result("replace@1234", "triplet", metrics, reader="replace")
    published.add_human([ours])
    assert ours["metrics"]["augmented_accuracy_macro"]["human"] == 0.97
    assert "human" not in ours["metrics"]["augmented_accuracy"]
    others = result("replace", "choice", {"augmented_accuracy_macro": metric()})
    published.add_human([others])
    assert "human" not in others["metrics"]["augmented_accuracy_macro"]
