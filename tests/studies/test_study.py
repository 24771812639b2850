"""The study: its plan, its values, its pages, and a shrunken part of it from the command line."""

import contextlib
import functools
import io
import json
import re
import shutil
import sys

import numpy as np
import pytest
import scipy.stats

from studies import (
    method_tables,
    study,
    study_columns,
    study_figures,
    study_page,
    study_plan,
    study_results,
)
from studies.study_results import Estimate, Kept, MissingValueError, Results
from tests.support import forks, helpers
from vlc_jax.configs.common import scenes

SWAP = ("scenes_attribute_swap", "accuracy")
H100 = "NVIDIA H100 80GB HBM3"
PLAN = [run for run in study_plan.plan("b", 1) if run.name in ("clip-0", "clip_ft-0", "hn-0")]


def of_swap(value, half=0.02, device="", config=""):
    """Values of a run: swapped attributes."""
    return Kept({SWAP[0]: {SWAP[1]: Estimate(value, value - half, value + half)}}, config, device)


def results_of(values, seeds=3):
    """Results of runs: name -> what is kept, of one device or of several."""
    several = {name: each if isinstance(each, list) else [each] for name, each in values.items()}
    by_device = {name: {one.device: one for one in each} for name, each in several.items()}
    return Results(by_device, seeds)


def results_of_docs():
    return Results(study_results.read_values(helpers.ROOT / "docs" / study_results.VALUES), 3)


def seeds_of(**values):
    """Run -> the value of each seed -> values of its runs."""
    return {
        f"{run}-{seed}": of_swap(value)
        for run, each in values.items()
        for seed, value in enumerate(each)
    }


def test_every_run_comes_after_those_that_it_needs():
    plan = study_plan.plan("".join(study_plan.PARTS), 3)
    names = [run.name for run in plan]
    assert len(set(names)) == len(names)
    for run in plan:
        assert all(names.index(name) < names.index(run.name) for name in run.needed)
        for name in (run.name, *run.needed):
            stem, _, seed = name.rpartition("-")
            assert int(seed) == min(run.seed, study_columns.seeds_of(stem, 3) - 1)


def test_the_plan_is_what_the_repository_has_values_of():
    done = {name.rpartition("-")[0] for name in results_of_docs()._values}
    planned = {run.name: run for part in study_plan.PARTS for run in study_plan.runs(part)}
    assert {name for name, run in planned.items() if run.tool in study_plan.WITH_VALUES} <= done
    for end, base in (("", "clip_mean"), ("_relations", "relations_mean")):
        assert planned[f"dcsm{end}"].base == base
        assert planned[f"dcsm{end}"].features == f"features_dcsm{end}"
        assert planned[f"dcsm{end}"].config == planned["dcsm"].config


def test_a_folder_with_other_settings_is_refused(tmp_path):
    (run,) = (run for run in study_plan.plan("a", 1) if run.name == "negclip-0")

    def write_request(run, flags=()):
        (tmp_path / run.name).mkdir(exist_ok=True)
        text = json.dumps(study.request(run, tmp_path, flags))
        (tmp_path / run.name / study.REQUEST).write_text(text)

    base = study.Run(run.base, "scenes/clip")
    write_request(base)
    write_request(run)
    study.check([base, run], tmp_path, ())
    with pytest.raises(ValueError, match=r"negclip-0/.* was begun with flags"):
        study.check([run], tmp_path, ("--config.steps=4",))
    write_request(base)  # trained anew
    with pytest.raises(ValueError, match="begun with ids of the runs that it needs"):
        study.check([base, run], tmp_path, ())


@pytest.mark.parametrize("error", [OSError(28, "No space left"), ValueError("no package")])
def test_a_run_that_cannot_start_fails_with_those_that_need_it(tmp_path, monkeypatch, error):
    def train(run, *_):
        raise error

    monkeypatch.setattr(study, "train", train)
    todo = study_plan.plan("j", 1)
    assert sorted(study.make(todo, tmp_path, 2, ())) == sorted(run.name for run in todo)


@pytest.mark.parametrize("wrong", [("--parts", "ax"), ("--seeds", "0"), ("--steps", "3")])
def test_wrong_parts_and_flags_are_refused(wrong, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["study.py", *wrong])
    with pytest.raises(SystemExit) as end:
        study.main()
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert wrong[0] in error or wrong[1] in error


def write(out, run, seed, value, metric="accuracy", benchmark=SWAP[0]):
    """The folder of a finished run with a result, and one of an older step."""
    folder = out / f"{run}-{seed}" / "evals" / benchmark
    folder.mkdir(parents=True, exist_ok=True)
    (out / f"{run}-{seed}" / "DONE").touch()
    for step, number in ((10, value), (9, 0.0)):
        metrics = {metric: {"value": number, "low": number - 0.02, "high": number + 0.02}}
        (folder / f"{step}.json").write_text(json.dumps({"metrics": metrics}))


def test_a_table_has_means_and_intervals_over_seeds(tmp_path):
    means = (0.55, 0.6, 0.65)
    for seed, value in enumerate(means):
        write(tmp_path, "hn", seed, value, "brittleness/size", "scenes_replace")
    write(tmp_path, "hp_hn", 0, 0.9, "brittleness/size", "scenes_replace")
    values = study_results.add({}, *study_results.finished(tmp_path))
    study_results.write_values(tmp_path / "kept.parquet", values)
    kept = Results(study_results.read_values(tmp_path / "kept.parquet"), 3)
    low, high = scipy.stats.t.interval(0.95, 2, np.mean(means), scipy.stats.sem(means))
    for results in (kept, Results(values, 3)):
        assert study_page.of_runs(results, ["hn"], "Brit size A").splitlines() == [
            "| model | Brit size A |",
            "|---|---|",
            "| chance | 33.3 |",
            f"| HN | 60.0 ±{50 * (high - low):.1f} |",
        ]
        with pytest.raises(MissingValueError, match="hp_hn-1 has no values"):
            study_page.of_runs(results, ["hn", "hp_hn"], "Brit size A")
    of_one = Results(values, 1)
    assert of_one.value("hn", "scenes_replace", "brittleness/size") == pytest.approx((0.55, 0.02))
    with pytest.raises(MissingValueError, match="hn-0 has no accuracy of scenes_objects: evaluat"):
        study_page.of_runs(of_one, ["hn"], "object")


def test_protocols_are_rows():
    metrics = of_swap(0.6).metrics[SWAP[0]]
    names = [f"scenes_attribute_swap_{name}" for name in study_columns.PROTOCOLS]
    values = {"clip_frozen-0": of_swap(0.6), "llava-0": Kept(dict.fromkeys(names, metrics))}
    table = study_page.of_protocols(results_of(values, 1), "clip_frozen", "llava", "attribute swap")
    assert table.splitlines()[2:] == [
        "| chance | 50.0 |",
        "| cosine of the towers | 60.0 ±2.0 |",
        "| log probability of the caption | 60.0 ±2.0 |",
        "| VQAScore | 60.0 ±2.0 |",
        "| keywords in what it writes, greedy | 60.0 ±2.0 |",
    ]


def test_a_difference_is_that_of_the_same_seeds():
    values = seeds_of(hn=(0.5, 0.6, 0.8), hp_hn=(0.6, 0.69, 0.88))
    value = results_of(values).difference("hp_hn", "hn", *SWAP)
    low, high = scipy.stats.t.interval(0.95, 2, 0.09, scipy.stats.sem((0.1, 0.09, 0.08)))
    assert value == pytest.approx((0.09, (high - low) / 2), abs=1e-5)
    of_one = results_of(values, 1).difference("hp_hn", "hn", *SWAP)
    assert study_results.signed(of_one) == "+10.0 ±–"


def test_further_benchmarks_are_those_of_a_run_that_is_done(tmp_path):
    run = next(run for run in study_plan.plan("g", 2) if run.name == "clip_geometry-1")
    words = study.command(run, tmp_path, ())
    assert words[words.index("--workdir") + 1] == str(tmp_path / "clip_geometry-1")
    path, _, argument = words[words.index("--config") + 1].partition(":")
    assert path == "configs/eval/all.py"
    assert argument.startswith(f"run={tmp_path}/clip-1,")
    assert study_plan.remaining([run], tmp_path / "none") == [run]


@pytest.fixture(scope="module")
def answers():
    """The page as the values of the repository make it, and what they do not support."""
    with contextlib.redirect_stderr(io.StringIO()) as errors:
        return study_page.answers(results_of_docs()), errors.getvalue()


def test_pages_are_what_the_values_of_the_repository_say(answers):
    docs = helpers.ROOT / "docs"
    page, errors = answers
    assert (docs / study_page.ANSWERS).read_text() == page
    assert errors == ""
    halves = re.findall(r"±(\d+\.\d)(?!\d)(,? \(?not resolved)?", page)
    assert all((float(half) >= 20) == bool(mark) for half, mark in halves)


def test_numbers_and_claims_are_those_of_the_values():
    values = seeds_of(hn=(0.81, 0.82, 0.83), clip=(0.61, 0.63, 0.65))
    prose = study_page.Prose(results_of(values))
    attributes = "attribute swap"
    assert prose.results.percent("hn", attributes) == "82"
    assert prose.each("hn", attributes) == "81, 82 and 83"
    assert prose.d("hn", "clip", attributes).startswith("+19.0 ±")
    with pytest.raises(MissingValueError, match="dcsm-0 has no values"):
        prose.each("dcsm", attributes)
    table = method_tables.rewritten("<!-- table: readme --><!-- end -->", prose.results)
    assert (
        "| HN (Kamath 2024) | a loss of negatives | `hn` |  |  |  |" in table
    )  # clip_ft is missing
    assert "| CLIP (Radford 2021) | softmax | `scenes/clip` | 63 |  |  |" in table
    prose.holds(prose.x("hn", attributes).low > 75, "right")
    prose.holds(prose.x("hn", attributes).low > 85, "wrong")
    assert prose.broken == ["wrong"]


def test_a_question_that_lacks_a_value_is_left_out_and_named(answers, capsys):
    values = dict(results_of_docs()._values)
    del values["clip_geometry-1"]
    page = study_page.answers(Results(values, 3))
    kept, all_titles = ({*re.findall("^## (.*)", text, re.M)} for text in (page, answers[0]))
    lines = capsys.readouterr().err.splitlines()
    end = "? clip_geometry-1 has no values"
    titles = {line.removeprefix("left out: ").removesuffix(end) + "?" for line in lines}
    assert titles == all_titles - kept
    assert len(lines) == 3


def test_a_table_takes_one_device_where_it_can():
    values = dict[str, list]()
    for seed in range(3):
        runs = {"clip": [("CPU", 0.6), ("H100", 0.65)], "clip_ft": [("CPU", 0.7), ("H100", 0.8)]}
        runs |= {"hn": [("H100", 0.9 + 0.01 * seed)], "siglip": [("CPU", 0.4 + 0.1 * seed)]}
        for run, each in runs.items():
            made = [of_swap(value, device=device) for device, value in each]
            values[f"{run}-{seed}"] = made
    results = results_of(values)

    def rows(*runs):
        return study_page.of_runs(results, runs, "attribute swap").splitlines()[3:]

    assert rows("clip", "clip_ft") == ["| CLIP | 60.0 ±0.0 |", "| CLIP-FT | 70.0 ±0.0 |"]
    results.prefer = "H100"
    assert rows("clip", "clip_ft") == ["| CLIP | 65.0 ±0.0 |", "| CLIP-FT | 80.0 ±0.0 |"]
    assert rows("clip", "siglip") == [
        "| CLIP, H100 | 65.0 ±0.0 |",
        "| SigLIP, CPU | 50.0 ±24.8 (not resolved) |",
    ]
    of_one = results.difference("hn", "clip_ft", *SWAP)
    of_two = results.difference("hn", "siglip", *SWAP)
    welch = scipy.stats.ttest_ind([0.9, 0.91, 0.92], [0.4, 0.5, 0.6], equal_var=False)
    low, high = welch.confidence_interval()
    assert of_one.mean == pytest.approx(0.11)
    assert of_two == pytest.approx((0.41, (high - low) / 2))


def test_a_wide_interval_is_not_resolved_and_few_seeds_are_named():
    values = seeds_of(minilm_vectors=(0.9,), hn=(0.5, 0.7, 0.9), clip=[0.7] * 3, clip_ft=[0.7] * 3)
    results = results_of(values)
    prose = study_page.Prose(results)
    runs = ["minilm_vectors", "hn"]
    once, hn = study_page.of_runs(results, runs, "attribute swap").splitlines()[3:]
    assert once == "| minilm_vectors, 1 seed | 90.0 ±2.0 |"
    assert hn == "| HN | 70.0 ±49.7 (not resolved) |"
    mark, of_hn = " (not resolved)", ("hn", "attribute swap")
    assert results.percent(*of_hn) == "70" + mark
    assert prose.d("hn", "clip_ft", "attribute swap") == "+0.0 ±49.7" + mark
    assert prose.score("hn", *SWAP) == "0.70" + mark
    row = method_tables.rewritten("<!-- table: readme --><!-- end -->", results)
    assert "| `hn` | 70 (not resolved) (70) |  |  |" in row
    assert study_results.unnested(f"70 (70{mark})") == "70 (70, not resolved)"
    columns = [study_columns.COLUMNS["attribute swap"]]
    (axes,) = study_figures._bars(results, ["clip", "hn"], columns).axes
    assert axes.get_ylabel().endswith("pale: not resolved")
    assert [bar.get_alpha() for bar in axes.patches] == [1, study_figures.PALE]


@pytest.mark.parametrize(("half", "marked"), [(0.1994, False), (0.1996, True), (0.2, True)])
def test_an_interval_that_is_printed_as_20_is_not_resolved(half, marked):
    value = study_results.Value(0.5, half)
    assert ("not resolved" in study_results.cell(value)) == marked


def finished(out, run, value):
    """The folder of a finished run of a study."""
    write(out, run.name.rpartition("-")[0], run.seed, value)
    folder = out / run.name
    (folder / study_results.REQUEST).write_text(json.dumps(study.request(run, out, ())))
    times = ("2026-11-27T13:44:24+00:00", "2026-11-27T13:45:46+00:00")
    (folder / "events.jsonl").write_text("".join(f'{{"time": "{t}"}}\n' for t in times))
    (folder / "env.json").write_text(json.dumps({"hardware": {"devices": [H100]}}))
    return True


def test_values_are_kept_when_a_run_ends(tmp_path, monkeypatch):
    def train(run, out, *_):
        return run.name != "hn-0" and finished(out, run, 0.75)

    monkeypatch.setattr(study, "train", train)
    plan, kept = PLAN, []
    for jobs in (1, 2):
        values = tmp_path / f"{jobs}.parquet"
        assert study.make(plan, tmp_path / str(jobs), jobs, (), values) == ["hn-0"]
        kept.append(values.read_bytes())
    assert kept[0] == kept[1]  # however many at a time
    read = study_results.read_values(values)
    assert {*read} == {"clip-0", "clip_ft-0"}
    of_run = of_swap(0.75, 0.02, "H100", "scenes/clip")
    of_run.metrics[study_results.RECORD] = {"seconds": Estimate(82)}
    assert read["clip-0"] == {"H100": of_run}
    assert [run.name for run in study_plan.remaining(plan, values)] == ["clip-0", "hn-0"]


def test_a_run_is_made_again_if_its_config_or_base_changed(tmp_path):
    names = [run.name for run in PLAN]
    made = {run.name: of_swap(0.5, device="CPU", config=run.config) for run in PLAN}

    def left(*without, **changes):
        values = made | {name: made[name]._replace(**change) for name, change in changes.items()}
        kept = results_of({name: values[name] for name in values if name not in without})._values
        study_results.write_values(tmp_path / "kept.parquet", kept)
        return [run.name for run in study_plan.remaining(PLAN, tmp_path / "kept.parquet")]

    assert left() == []
    assert left(*names) == names
    assert left("hn-0") == ["clip-0", "hn-0"]
    assert left(**{"hn-0": {"config": "negclip"}}) == ["clip-0", "hn-0"]
    bare = {name: {"config": "", "device": ""} for name in names}
    assert left(**bare) == []  # values without records
    assert left(**{"clip-0": {"config": "scenes/clip:steps=9"}}) == names
    assert left(**{"clip-0": {"device": "H100"}}) == names


@pytest.mark.slow
def test_heads_train_on_what_other_runs_store(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", forks.stand_in(helpers.environment()))
    small = (
        *("--config.steps=2", "--config.batch_size=16", "--config.optimizer.warmup_steps=1"),
        *("--config.input.scenes.count=16", "--config.input.preview=4", "--config.log_every=1"),
        *("--config.eval.batch_size=16", "--config.eval.examples=1"),
        "--config.model.image={'depth': 1, 'pooling': 'mean'}",
        "--config.evals={'scenes_attribute_swap': {'split': 'test', 'count': 16}}",
    )
    runs = {run.name: run for run in study_plan.plan("d", 1)}
    wanted = ("clip_mean", "features_sparc", "sparc", "vectors", "text_vectors")
    todo = [runs[f"{name}-0"] for name in wanted]
    todo[3] = todo[3]._replace(base="clip_mean-0")
    assert study.make(todo, tmp_path, 1, small) == []
    assert all((tmp_path / run.name / "DONE").exists() for run in todo)


@pytest.mark.slow
def test_a_study_goes_on_where_it_stopped_and_writes_its_page(tmp_path, capsys):
    small = (
        *("--config.steps=2", "--config.batch_size=8", "--config.optimizer.warmup_steps=1"),
        *("--config.input.scenes.count=32", "--config.input.preview=4", "--config.log_every=1"),
        *("--config.eval.batch_size=16", "--config.model.image={'depth': 1}"),
        "--config.model.text={'depth': 1}",
        f"--config.evals={scenes.evaluations('test', 8, 8)}",
    )
    plan = [run for run in study_plan.plan("b", 1) if run in PLAN or run.name == "hp_hn-0"]
    out, docs = tmp_path / "runs", tmp_path / "docs"

    def run(*more):
        write = functools.partial(study_page.write, out, docs, 1)
        values = docs / study_results.VALUES
        return study.complete(plan, out, 2, (*small, *more), write, values)

    assert run("--config.losses.analogy.weight=0.5") == 1  # only HP+HN has that loss
    assert "failed: clip-0" in capsys.readouterr().err
    assert run() == 2
    assert "was begun with flags" in capsys.readouterr().err
    shutil.rmtree(out / "clip-0")
    assert run() == 0, (out / "clip-0/log.txt").read_text()
    results = Results(study_results.read_values(docs / study_results.VALUES), 1)
    assert all(map(results.has, ("clip", "clip_ft", "hn", "hp_hn")))
    before = (out / "hn-0" / "events.jsonl").read_text()
    assert run() == 0
    assert (out / "hn-0" / "events.jsonl").read_text() == before
