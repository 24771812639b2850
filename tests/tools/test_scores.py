"""vlc-jax scores, and vlc-jax import_scores, its reverse"""

import csv
import json
import shutil

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

import vlc_jax
from tests.support import helpers
from tests.support.sets import sugarcrepe, sugarcrepe_pp, winoground
from vlc_jax.tools import import_scores, scores

RESULT = {"protocol": "pairs", "version": "v", "metrics": {"pair_accuracy": {"value": 0.5}}}
ROWS = [
    {"id": "a", "captions": ["x", "y"], "scores": [[1, 2], [3, 4.5]], "correct": False},
    {
        "id": "b",
        "captions": ["x"],
        "scores": [0.5],
        "correct": True,
        "tie": True,
        "group": {"k": 1},
    },
    {"id": "c", "captions": ["x"], "scores": [], "correct": True},
]


@pytest.fixture
def workdir(tmp_path):
    def make(name, rows, step):
        folder = tmp_path / name / "evals" / "b"
        folder.mkdir(parents=True)
        (tmp_path / name / "config.json").write_text("{}")
        result = RESULT | {"benchmark": "b", "step": step, "score_rows": len(rows)}
        (folder / f"{step}.json").write_text(json.dumps(result))
        helpers.write_rows(folder / f"{step}.scores.jsonl", rows)
        return tmp_path / name

    return make


def test_cases_of_all_runs_are_rows_that_can_be_joined(workdir, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(scores, "ROWS", 1)  # several parts
    out = tmp_path / "scores.parquet"
    paths = [workdir("one", ROWS, 5), workdir("two", ROWS[:2], 9)]
    assert scores.main([*map(str, paths), "--out", str(out)]) == 0
    assert "4 rows of 2 runs" in capsys.readouterr().out
    table = parquet.read_table(out).to_pylist()
    assert [(row["run"], row["step"], row["case"]) for row in table] == [
        *(("one", 5, "a"), ("one", 5, "b")),
        *(("two", 9, "a"), ("two", 9, "b")),
    ]
    assert (table[0]["scores"], table[0]["images"]) == ([1, 2, 3, 4.5], 2)
    assert (table[1]["tie"], json.loads(table[1]["group"])) == (True, {"k": 1})


def test_without_scores_there_is_one_line_and_no_file(workdir, tmp_path, capsys):
    out = tmp_path / "scores.parquet"
    assert scores.main([str(workdir("empty", [], 5)), "--out", str(out)]) == 3
    assert "no benchmark has been evaluated yet" in capsys.readouterr().err
    assert scores.main([str(tmp_path / "nowhere"), "--out", str(out)]) == 3
    assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".CSV"])
def test_the_suffix_is_the_form_and_import_scores_reads_it(suffix, workdir, tmp_path, capsys):
    path = workdir("one", ROWS[:1], 5)
    out = tmp_path / f"scores{suffix}"
    assert scores.main([str(path), "--out", str(out)]) == 0
    assert "1 row of 1 run:" in capsys.readouterr().out
    table = import_scores.read(out, "b", "one")
    assert table == {"a": {"scores": [1, 2, 3, 4.5], "captions": ["x", "y"]}}
    if suffix == ".csv":
        (row,) = csv.DictReader(out.read_text().splitlines())
        assert (row["tie"], row["step"], row["group"]) == ("false", "5", "null")


def test_a_form_that_is_not_written_is_refused(workdir, tmp_path, capsys):
    out = tmp_path / "scores.xlsx"
    assert scores.main([str(workdir("one", ROWS, 5)), "--out", str(out)]) == 2
    assert ".parquet, .csv, .jsonl, the form of the file; got" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["one"]


@pytest.mark.parametrize(
    ("file", "change", "message"),
    [
        (
            "0.scores.jsonl",
            lambda text: text[: text.index("\n") + 20],
            "is damaged: it has 1 whole rows of 14 (evals/",
        ),
        (
            "0.scores.jsonl",
            lambda text: text[: text.index("\n") + 1],
            "is damaged: it has 1 whole rows of 14; restore it",
        ),
        ("0.scores.jsonl", None, "is damaged: it has 0 whole rows of 14; restore it"),
        ("0.json", lambda text: text[:50], "cannot be read: "),
    ],
    ids=["cut row", "cut between rows", "no scores", "cut result"],
)
def test_a_damaged_file_is_named_and_nothing_is_written(
    file, change, message, table, tmp_path, capsys
):
    shutil.copytree(table.parent / "gpt", tmp_path / "gpt")
    path = tmp_path / "gpt/evals/sugarcrepe" / file
    text = path.read_text()
    path.unlink()
    if change:
        path.write_text(change(text))
    assert scores.main([str(tmp_path / "gpt"), "--out", str(tmp_path / "s.csv")]) == 3
    error = capsys.readouterr().err
    assert (f"evals/sugarcrepe/{file} {message}" in error, error.count("\n")) == (True, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["gpt"]


SETS = {"sugarcrepe": sugarcrepe, "sugarcrepe_pp": sugarcrepe_pp, "winoground": winoground}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sets")
    for each in SETS.values():
        each.write(folder)
    return folder


def score(images, texts):
    """Scores of many digits, of which some tie."""
    brightness = [np.mean(image) / 7 for image in images]
    return [[len(set(text)) * each + ord(text[-2]) for text in texts] for each in brightness]


@pytest.fixture(scope="module")
def table(root, tmp_path_factory):
    """A Parquet file of a run on SETS."""
    folder = tmp_path_factory.mktemp("run")
    vlc_jax.evaluate(score, list(SETS), root=root, workdir=folder / "gpt")
    scores.write([folder / "gpt"], folder / "all.parquet")
    return folder / "all.parquet"


def imported(path, root, workdir, benchmark, *more):
    words = [str(path), "--benchmark", benchmark, "--root", str(root), "--workdir", str(workdir)]
    import_scores.main([*words, *more])
    return json.loads((workdir / f"evals/{benchmark}/0.json").read_text())


@pytest.mark.parametrize("form", [".parquet", ".csv", ".jsonl"])
@pytest.mark.parametrize("benchmark", SETS)
def test_a_table_becomes_a_workdir_of_the_same_results(form, benchmark, table, root, tmp_path):
    rows = parquet.read_table(table).to_pylist()
    path = tmp_path / f"scores{form}"
    if form == ".parquet":
        path = table
    elif form == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["case", "scores"])
            benchmark_rows = (row for row in rows if row["benchmark"] == benchmark)
            writer.writerows([row["case"], json.dumps(row["scores"])] for row in benchmark_rows)
    else:  # as a workdir has it
        path = table.parent / f"gpt/evals/{benchmark}/0.scores.jsonl"
    found = imported(path, root, tmp_path / "again", benchmark)
    first = table.parent / f"gpt/evals/{benchmark}"
    expected = json.loads((first / "0.json").read_text())
    assert found["metrics"] == expected["metrics"]
    assert found["summary"] == expected["summary"]
    assert found["version"] == expected["version"]
    rows = tmp_path / f"again/evals/{benchmark}/0.scores.jsonl"
    assert rows.read_text() == (first / "0.scores.jsonl").read_text()
    # the images are those of the set
    images = [sorted(file.name for file in (x / "images").iterdir()) for x in (first, rows.parent)]
    assert images[0] == images[1] != []


def two_runs_rows(rows):
    return [{**row, "run": run} for run in ("a", "b") for row in rows]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows[1:], "1 of 14 have no scores: 'add_att_000000_"),
        (lambda rows: [*rows, {**rows[0], "case": "nobody"}], "1 are no cases: 'nobody'"),
        (
            lambda rows: [*rows, rows[1]],
            "case 'add_att_000002_000000000002.jpg' occurs twice, again in row 15",
        ),
        (
            lambda rows: [{**rows[0], "scores": [1.0]}, *rows[1:]],
            "case 'add_att_000000_000000000000.jpg' has 1 images and 2 texts, so 2 scores",
        ),
        (
            lambda rows: [{**rows[0], "scores": [1.0, float("nan")]}, *rows[1:]],
            "scores are finite numbers; case 'add_att_000000_",
        ),
        (
            lambda rows: [{**row, "captions": row["captions"][::-1]} for row in rows],
            "has the captions ['A cat sits on its legs add_att.', ",
        ),
        (two_runs_rows, "has rows of the runs a, b: choose one with --run"),
        (
            lambda rows: [{"case": row["case"], "score": 1.0} for row in rows],
            "a row has case (or id) and scores; row 1 has case, score",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_one_line(
    change, message, table, root, tmp_path, capsys
):
    rows = [x for x in parquet.read_table(table).to_pylist() if x["benchmark"] == "sugarcrepe"]
    parquet.write_table(pyarrow.Table.from_pylist(change(rows)), tmp_path / "t.parquet")
    with pytest.raises(SystemExit) as ended:
        imported(tmp_path / "t.parquet", root, tmp_path / "w", "sugarcrepe")
    error = capsys.readouterr().err
    assert (ended.value.code, error.count("\n")) == (3, 1)
    assert message in error
    assert not (tmp_path / "w/evals").exists()


def test_one_of_several_runs_is_chosen_and_options_are_given(table, root, tmp_path):
    rows = two_runs_rows(parquet.read_table(table).to_pylist())
    path = tmp_path / "t.parquet"
    parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    options = ("--run", "b", "--option", "tie=half", "--name", "GPT")
    found = imported(path, root, tmp_path / "w", "winoground", *options)
    assert found["details"]["tie"] == "half"
    # another benchmark of the same model, beside it
    assert imported(path, root, tmp_path / "w", "sugarcrepe", *options)["weights"].startswith("GPT")


def test_another_table_does_not_replace_results(table, root, tmp_path, capsys):
    imported(table, root, tmp_path / "w", "winoground", "--name", "x")
    rows = [x for x in parquet.read_table(table).to_pylist() if x["benchmark"] == "winoground"]
    path = tmp_path / "t.parquet"
    other = [{**row, "scores": row["scores"][::-1]} for row in rows]
    parquet.write_table(pyarrow.Table.from_pylist(other), path)
    with pytest.raises(SystemExit):
        imported(path, root, tmp_path / "w", "winoground", "--name", "x")
    assert "has the scores of x " in capsys.readouterr().err


def test_cases_that_are_compared_with_each_other_need_a_scorer(table, root, tmp_path, capsys):
    path = tmp_path / "t.jsonl"
    path.write_text('{"case": "a", "scores": [1]}\n')
    words = [str(path), "--benchmark", "scenes_retrieval", "--workdir", str(tmp_path / "w")]
    with pytest.raises(SystemExit) as ended:
        import_scores.main([*words, "--option", "count=4"])
    assert ended.value.code == 2
    assert "the protocol 'retrieval': evaluate a scorer" in capsys.readouterr().err
