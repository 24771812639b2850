"""vlc-jax scores"""

import json

import pytest
from pyarrow import parquet

from vlc_jax.tools import scores

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
        result = RESULT | {"benchmark": "b", "step": step}
        (folder / f"{step}.json").write_text(json.dumps(result))
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{step}.scores.jsonl").write_text(text)
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
