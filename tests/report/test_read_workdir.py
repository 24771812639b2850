import json
import os

import pytest

from vlc_jax.report import read_workdir, summary, table


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_missing_folder_and_a_folder_of_something_else_are_refused(tmp_path):
    with pytest.raises(read_workdir.NotAWorkdirError, match="no such folder"):
        read_workdir.read(tmp_path / "gone")
    write(tmp_path / "holiday.txt", "sun")
    with pytest.raises(read_workdir.NotAWorkdirError, match=r"none of config\.json, env\.json"):
        read_workdir.read(tmp_path)
    write(tmp_path / "file", "")
    with pytest.raises(read_workdir.NotAWorkdirError, match="no such folder"):
        read_workdir.read(tmp_path / "file")


def test_half_written_and_repeated_rows_leave_each_step_once(tmp_path):
    rows = ['{"step": 2, "a": 1}', '{"step": 1, "a": 1}', '{"step": 2, "a": 9}', "[1]", '{"st']
    write(tmp_path / "metrics.jsonl", "\n".join(rows))
    run = read_workdir.read(tmp_path)
    assert run.metrics == [{"step": 1, "a": 1}, {"step": 2, "a": 9}]
    assert "metrics.jsonl: 2 lines are no JSON object and were left out" in run.notes


@pytest.mark.parametrize(("newer", "failed"), [("DONE", False), ("FAILED", True)])
def test_the_newer_of_done_and_failed_holds(tmp_path, newer, failed):
    for name in ("DONE", "FAILED"):
        write(tmp_path / name, "{}")
        os.utime(tmp_path / name, (2e9, 2e9) if name == newer else (1e9, 1e9))
    run = read_workdir.read(tmp_path)
    assert (run.failed is not None) == failed
    assert (run.done is not None) != failed


def test_another_evaluation_under_a_name_says_how_it_differs(tmp_path):
    results = {
        "r": {"options": {"split": "validation"}, "version": "1"},
        "r@51553eca": {"options": {"split": "train", "count": 8}, "version": "2"},
        "r@aaaaaaaa": {"options": {"split": "validation"}, "version": "3"},
        "s@bbbbbbbb": {},  # a run of another benchmark, whose first results are gone
    }
    for name, result in results.items():
        result["metrics"] = {"accuracy": {"value": 0.5}}
        write(tmp_path / "evals" / name / "5.json", json.dumps(result))
    run = read_workdir.read(tmp_path)
    titles = ["r", "r (split train, count 8)", "r (other data)", "s (bbbbbbbb)"]
    assert [one.title for one in run.evaluations] == titles
    assert [row.name for row in table.rows(one.newest for one in run.evaluations)] == titles


def test_results_come_by_step_and_benchmarks_as_the_config_names_them(tmp_path):
    for name in ("a", "b", "c"):
        for step in (1000, 250):
            result = json.dumps({"metrics": {"m": {"value": step / 1000}}})
            write(tmp_path / "evals" / name / f"{step}.json", result)
    write(tmp_path / "evals" / "c" / "250.scores.jsonl", "")
    write(tmp_path / "config.json", json.dumps({"evals": {"c": {}, "a": {}}}))
    run = read_workdir.read(tmp_path)
    assert [evaluation.name for evaluation in run.evaluations] == ["c", "a", "b"]
    assert [result["step"] for result in run.evaluations[0].results] == [250, 1000]
    newest = read_workdir.newest_results(tmp_path)
    assert [(r["benchmark"], r["step"]) for r in newest] == [("c", 1000), ("a", 1000), ("b", 1000)]


def test_a_file_of_scores_that_lost_its_last_rows_is_a_note_and_an_earlier_one_cannot_be(tmp_path):
    rows = [json.dumps({"id": name, "correct": True}) + "\n" for name in "abc"]
    write(tmp_path / "evals" / "b" / "5.scores.jsonl", "".join(rows[:2]))
    run = read_workdir.Run(tmp_path)
    for expected in ({"score_rows": 2}, {}):
        assert len([*read_workdir.score_rows(run, "b", {"step": 5, **expected})]) == 2
    assert run.notes == []
    for _ in range(2):
        assert len([*read_workdir.score_rows(run, "b", {"step": 5, "score_rows": 3})]) == 2
    assert run.notes == ["evals/b/5.scores.jsonl has 2 whole rows of 3: it was cut"]


def test_only_cases_with_images_and_fitting_scores_are_examples(tmp_path):
    folder = tmp_path / "evals" / "b"
    write(folder / "5.json", '{"metrics": {"m": {"value": 1}}}')
    good = {"captions": ["x", "y"], "scores": [0.5, 0.25]}
    rows = [
        good | {"id": "no image"},
        good | {"id": "val/1"},
        good | {"id": "2", "scores": [0.5]},
        good | {"id": "3", "scores": [0.5, float("nan")]},
        good | {"id": "4", "scores": [[1, 2], [3]]},
        good | {"id": "5", "scores": [[1, 2], [3, 4]]},
    ]
    write(folder / "5.scores.jsonl", "\n".join(map(json.dumps, rows)))
    for name in ("val_1_0", "2_0", "3_0", "4_0", "5_0", "5_1"):
        write(folder / "images" / f"{name}.png", "")
    (evaluation,) = read_workdir.read(tmp_path).evaluations
    found = [
        (example.row["id"], [file.name for file in example.images])
        for example in evaluation.examples
    ]
    assert found == [("val/1", ["val_1_0.png"]), ("5", ["5_0.png", "5_1.png"])]


def at(minute, event, **fields):
    return {"time": f"2026-11-27T10:{minute:02d}:00+00:00", "event": event, **fields}


def test_goodput_is_the_share_of_steps_and_names_where_the_rest_went():
    one = {"steps": 300.0, "compilation": 60.0, "input": 0.001, "evaluation": 30.0}
    events = [
        at(0, "start"),
        at(2, "time", seconds={"steps": 60.0, "compilation": 60.0}),
        at(7, "time", seconds=one),
        # killed; work after the last save is lost
        at(20, "resume"),
        at(23, "time", seconds={"steps": 150.0, "checkpoints": 30.0}),
        at(24, "done"),
    ]
    assert summary._goodput(events) == (
        "31.2 % in steps of 0:24:00; 4.2 % compilation, 2.1 % checkpoints, 2.1 % evaluation, "
        "60.4 % restarts"
    )
    assert summary._goodput(events[:3]) == (
        "71.4 % in steps of 0:07:00; 14.3 % compilation, 7.1 % evaluation, 7.1 % other"
    )
    assert summary._goodput([]) == summary._goodput([at(0, "start"), at(9, "done")]) == ""
    odd = [{"event": "start", "time": ["a"]}, at(1, "time", seconds=[1])]
    odd += [at(1, "time", seconds={"steps": "x", "input": -1, "evaluation": 10**400, "b": {}})]
    assert summary._goodput(odd) == ""
