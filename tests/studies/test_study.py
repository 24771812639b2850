"""The study: its plan, its page, and a shrunken part of it from the command line."""

import contextlib
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
    study_prose,
    study_results,
)
from tests.support import forks, helpers
from vlc_jax.configs.common import scenes
from vlc_jax.configs.eval import all as suite
from vlc_jax.configs.scenes import llava
from vlc_jax.input_pipeline.benchmarks import scene_geometry


def test_every_run_comes_after_the_one_it_starts_from():
    plan = study_plan.plan("".join(study_plan.PARTS), 3)
    names = [run.name for run in plan]
    assert len(set(names)) == len(names)
    for run in plan:
        assert all(names.index(name) < names.index(run.name) for name in run.needed)
        for name in (run.name, *run.needed):
            stem, _, seed = name.rpartition("-")
            assert int(seed) == min(run.seed, study_columns.seeds_of(stem, 3) - 1)


def test_every_run_of_a_finding_and_of_the_sweep_is_in_both_worlds_of_the_plan():
    of_findings = {name for _, run, other, *_ in study_page.FINDINGS for name in (run, other)}
    for part, suffix in (("b", ""), ("e", "_synonyms")):
        planned = {run.name for run in study_plan.runs(part)}
        assert {f"{name}{suffix}" for name in of_findings | {*study_columns.SWEEP}} <= planned
    weights = [run.config for run in study_plan.runs("b") if "hn_weight" in run.config]
    assert len(weights) == 2 * len(study_plan.NEGATIVE_WEIGHTS)


def test_a_run_that_was_asked_for_otherwise_is_refused(tmp_path):
    (run,) = (run for run in study_plan.plan("a", 1) if run.name == "negclip-0")

    def write_request(run, flags=()):
        (tmp_path / run.name).mkdir(exist_ok=True)
        text = json.dumps(study.request(run, tmp_path, flags))
        (tmp_path / run.name / study.REQUEST).write_text(text)

    base = study.Run(run.base, "scenes/clip")
    write_request(base)
    write_request(run)
    study.check([base, run], tmp_path, ())
    with pytest.raises(ValueError, match=r"negclip-0 has other settings: flags"):
        study.check([run], tmp_path, ("--config.steps=4",))
    write_request(base)  # trained anew
    with pytest.raises(ValueError, match="id of the base"):
        study.check([base, run], tmp_path, ())


def test_a_run_that_cannot_be_started_fails_it_and_those_that_start_from_it(tmp_path, monkeypatch):
    def train(run, *_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(study, "train", train)
    todo = study_plan.plan("c", 1)
    assert sorted(study.Study(todo, tmp_path, 2, ()).run()) == sorted(run.name for run in todo)


def write(out, run, value, seed, benchmark="scenes_replace"):
    folder = out / f"{run}-{seed}"
    (folder / "evals" / benchmark).mkdir(parents=True, exist_ok=True)
    (folder / "DONE").touch()
    metrics = {
        column.metric: {"value": value, "low": value - 0.02, "high": value + 0.02}
        for column in study_columns.triplet_columns(benchmark, "size")
    }
    path = folder / "evals" / benchmark / "9.json"
    path.write_text(json.dumps({"metrics": metrics}))
    path.with_name("10.json").write_text(json.dumps({"metrics": metrics}))
    path.write_text("an older step")


def test_table_has_means_and_intervals_over_seeds_of_the_runs_that_are_done(tmp_path):
    values = (0.55, 0.6, 0.65)
    for seed, value in enumerate(values):
        write(tmp_path, "hn", value, seed)
    write(tmp_path, "hp_hn", 0.9, 0)
    results = study_results.Results(tmp_path, 3)
    results.save(tmp_path / "kept.json")
    from_file = study_results.Results(tmp_path / "nowhere", 3, tmp_path / "kept.json")
    assert from_file.value("hn", "scenes_replace", "brittleness/size").mean == pytest.approx(0.6)
    assert from_file.has("hn")
    assert not from_file.has("hp_hn")
    text = study_page.table(
        results, ["hn", "hp_hn"], study_columns.triplet_columns("scenes_replace", "size", "A")
    )
    low, high = scipy.stats.t.interval(0.95, 2, np.mean(values), scipy.stats.sem(values))
    assert text.splitlines()[0] == "| model | Orig A | Aug A | Brit A |"
    assert text.splitlines()[2] == "| chance | 50.0 | 33.3 | 33.3 |"
    assert text.splitlines()[3] == f"| HN |{f' 60.0 ±{50 * (high - low):.1f} |' * 3}"
    assert len(text.splitlines()) == 4

    of_one = study_results.Results(tmp_path, 1)
    value = of_one.value("hn", "scenes_replace", "brittleness/size")
    assert value == pytest.approx((0.55, 0.02))


def test_protocols_of_one_model_are_rows_and_what_is_not_asked_is_blank(tmp_path):
    of_swap = {"accuracy": [0.6, 0.58, 0.62]}
    kept = {
        "clip_frozen-0": {"scenes_attribute_swap": of_swap},
        "llava-0": {
            f"scenes_{name}": of_swap for name in ("attribute_swap_score", "spatial_m3id_t0")
        },
    }
    (tmp_path / "kept.json").write_text(json.dumps(kept))
    results = study_results.Results(tmp_path, 1, tmp_path / "kept.json")
    columns = [
        study_columns.Column("attributes", "scenes_attribute_swap", "accuracy", 0.5),
        study_columns.Column("places", "scenes_spatial", "accuracy", 0.5),
    ]
    table = study_page.protocols(results, "clip_frozen", "llava", columns).splitlines()
    assert table[2:5] == [
        "| chance | 50.0 | 50.0 |",
        "| cosine of the towers | 60.0 ±2.0 | – |",
        "| log probability of the caption | 60.0 ±2.0 | – |",
    ]
    assert table[7] == "| keywords, M3ID with t from 0 | – | 60.0 ±2.0 |"
    with pytest.raises(ValueError, match="has no accuracy of scenes_spatial: evaluate it again"):
        study_page.table(results, ["clip_frozen"], columns)


def test_every_set_and_protocol_of_the_miniature_has_its_place_in_the_table():
    evals = {*llava.get_config().evals}
    sets = {column.benchmark for column in study_columns.ANSWERS}
    assert evals <= {f"{name}_{end}" for name in sets for end in study_columns.PROTOCOLS}
    assert all({f"{name}_score", f"{name}_vqascore"} <= evals for name in sets)


def test_a_difference_is_that_of_the_same_seeds(tmp_path):
    for seed, value in enumerate((0.5, 0.6, 0.8)):
        write(tmp_path, "hn", value, seed)
        write(tmp_path, "hp_hn", value + 0.1 - 0.01 * seed, seed)
    results = study_results.Results(tmp_path, 3)
    value = results.difference("hp_hn", "hn", "scenes_replace", "brittleness/size")
    low, high = scipy.stats.t.interval(0.95, 2, 0.09, scipy.stats.sem((0.1, 0.09, 0.08)))
    assert value == pytest.approx((0.09, (high - low) / 2), abs=1e-5)


def test_runs_whose_values_are_kept_are_trained_only_for_those_that_start_from_them(tmp_path):
    kept = tmp_path / "results.json"
    todo = study_plan.plan("c", 1)
    assert study_plan.remaining(todo, kept) == todo
    kept.write_text(json.dumps({run.name: {} for run in todo if run.name != "hn_hues-0"}))
    assert [run.name for run in study_plan.remaining(todo, kept)] == ["clip_hues-0", "hn_hues-0"]
    kept.write_text(json.dumps({run.name: {} for run in todo}))
    assert study_plan.remaining(todo, kept) == []
    heads = study_plan.plan("d", 1)
    kept.write_text(json.dumps({run.name: {} for run in heads if run.tool == "train"}))
    assert study_plan.remaining(heads, kept) == []


def test_embeddings_are_asked_of_a_run_that_is_done_with_benchmarks_that_the_page_shows(tmp_path):
    run = next(run for run in study_plan.plan("g", 2) if run.name == "clip_geometry-1")
    words = study.command(run, tmp_path, ())
    assert words[words.index("--workdir") + 1] == str(tmp_path / "clip_geometry-1")
    path, _, argument = words[words.index("--config") + 1].partition(":")
    assert path == "configs/eval/all.py"
    assert argument.startswith(f"run={tmp_path}/clip-1,")
    evals = suite.get_config("sets=scenes_geometry+scenes_shuffled").evals
    shown = (*study_columns.PROBES, *study_columns.SUPERPOSITION, *study_columns.SHUFFLED)
    assert {column.benchmark for column in shown} <= {*evals}
    assert study_plan.remaining([run], tmp_path / "none") == [run]


def test_wrong_parts_and_flags_are_refused():
    for wrong in (("--parts", "ax"), ("--seeds", "0"), ("--steps", "3")):
        done = helpers.python("studies/study.py", *wrong)
        assert done.returncode == 2
        assert wrong[0] in done.stderr or wrong[1] in done.stderr


def test_the_notes_on_heads_have_those_that_are_done(tmp_path, monkeypatch, capsys):
    for run in ("clip_mean", "dcsm", "relations_mean", "pacl_relations"):
        for column in study_columns.HEADS:
            metrics = {column.metric: {"value": 0.75, "low": 0.7, "high": 0.8}}
            folder = tmp_path / f"{run}-0" / "evals" / column.benchmark
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / "9.json"
            before = json.loads(path.read_text())["metrics"] if path.exists() else {}
            path.write_text(json.dumps({"metrics": before | metrics}))
        (tmp_path / f"{run}-0" / "DONE").touch()
    study_results.Results(tmp_path, 1).save(tmp_path / study_results.VALUES)
    monkeypatch.setattr(sys, "argv", ["", f"--out={tmp_path}", "--parts=d", "--seeds=1", "--all"])
    assert study.main() == 0
    section = capsys.readouterr().out.partition("## Heads on frozen towers")[2]
    shown = [line.split("|")[1].strip() for line in section.splitlines() if "75.0" in line]
    cosine = "cosine of the towers"  # of either base, in both pairs of tables
    assert shown == [cosine, "DCSM", cosine, "PACL", cosine, cosine, "PACL"]


def test_sections_of_other_parts_stay_as_they_are(tmp_path):
    written = study_page.write(tmp_path, tmp_path, 1, "abcd").read_text()
    old = written.replace("## Is CLIP", "## Old").replace("## Which heads", "## Old")
    assert old.count("## Old") == 2
    (tmp_path / "results.md").write_text(old)
    page = study_page.write(tmp_path, tmp_path, 1, "d").read_text()
    assert page == written.replace("## Is CLIP", "## Old")


def _rows(page):
    """Label -> cells with an interval, of all tables of a page."""
    rows = {}
    for line in page.splitlines():
        if line.startswith("|") and "±" in line:
            label, *cells = line.strip("| ").split(" | ")
            label = re.sub(r", (CPU|[A-Z]+\d+)$", "", label)  # the device, if a table has several
            rows.setdefault(label, []).extend(cells)
    return rows


@pytest.fixture(scope="module")
def pages():
    """Answers and notes as the values of the repository make them, and what they do not support."""
    docs = helpers.ROOT / "docs"
    with (
        contextlib.redirect_stdout(io.StringIO()) as notes,
        contextlib.redirect_stderr(io.StringIO()) as errors,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(sys, "argv", ["study.py", "--out", "no runs", "--all"])
        assert study.main() == 0
        results = study_results.Results(docs, 3, docs / study_results.VALUES)
        answers = study_page.render(results, study_page.ANSWERS, study_plan.PARTS)
    return answers, notes.getvalue(), errors.getvalue()


def test_every_value_of_an_answer_is_in_the_laboratory_notes_under_the_same_name(pages):
    answers, notes = map(_rows, pages[:2])
    assert len(answers) > 20
    assert all({*cells} <= {*notes[label]} for label, cells in answers.items())


def test_every_answer_is_short(pages):
    prose = "\n".join(line for line in pages[0].splitlines() if not line.startswith("|"))
    assert len(prose.split()) <= 1400
    for question in prose.split("\n## ")[1:]:
        assert question.splitlines()[0].endswith("?")
        assert len(question.split()) <= 110


def test_pages_are_what_the_values_of_the_repository_say(pages):
    docs = helpers.ROOT / "docs"
    answers, notes, errors = pages
    assert (docs / study_page.ANSWERS).read_text() == answers
    assert all((docs / link).exists() for link in re.findall(r"\]\(([^)#:]+)", notes))
    assert errors == ""
    halves = re.findall(r"±(\d+\.\d)(?!\d)(,? \(?not resolved)?", answers + notes)
    assert all((float(half) >= 20) == bool(mark) for half, mark in halves)


def of_swap(value):
    return {"scenes_attribute_swap": {"accuracy": [value, value - 0.02, value + 0.02]}}


def prose_of(tmp_path, values):
    path = tmp_path / "results.json"
    study_results.write_values(path, values)
    return study_prose.Prose(study_results.Results(tmp_path, 3, path))


def test_numbers_in_a_text_and_its_claims_are_those_of_the_values(tmp_path):
    values = {f"hn-{seed}": of_swap(0.81 + 0.01 * seed) for seed in range(3)}
    values |= {f"clip-{seed}": of_swap(0.61 + 0.02 * seed) for seed in range(3)}
    prose = prose_of(tmp_path, values)
    assert prose.n("hn", "attributes") == "82"
    assert prose.each("hn", "attributes") == "81, 82 and 83"
    assert prose.d("hn", "clip", "attributes").startswith("+19.0 ±")
    assert prose.n("dcsm", "attributes") == prose.each("dcsm", "attributes") == study_prose.MISSING
    table = method_tables.rewritten("<!-- table: readme --><!-- end -->", prose)
    assert "| HN (Kamath 2024) | own negatives | `hn` |  |  |  |" in table  # clip_ft is missing
    assert "| CLIP (Radford 2021) | softmax | `scenes/clip` | 63 |  |  |" in table
    prose.holds(prose.x("hn", "attributes").low > 75, "right")
    prose.holds(prose.x("dcsm", "attributes").low > 75, "unknown")
    prose.holds(prose.x("hn", "attributes").low > 85, "wrong")
    assert prose.broken == ["wrong"]


def test_sentences_without_values_are_left_out_and_the_others_stay():
    gone = study_prose.MISSING
    page = (
        f"Yes. It is {gone} now (3.5 of 4). Still.\n[Notes](a.md#b)\n\nOnly {gone}.\n[Notes](c)\n\n"
        f"- **One**: {gone}.\n- **Two** is 2. Three is {gone}. Four\n  is 4.\n{study_prose.CLAIM}\n"
        f"- Five {gone}.\n"
    )
    assert study_prose.without_marks(page).rstrip() == (
        "Yes. Still. [Notes](a.md#b)\n\nNot run yet. [Notes](c)\n\n- **Two** is 2. Four\n  is 4."
    )


def test_values_of_a_second_device_stand_beside_and_a_table_takes_one_device(tmp_path):
    def of(device, value):
        return of_swap(value) | {study_results.RECORD: {"config": "x", "device": device}}

    values = dict[str, dict]()
    for seed in range(3):
        for run, cpu in (("clip", 0.6), ("clip_ft", 0.7)):
            study_results.add(values, f"{run}-{seed}", of("cpu", cpu))
        for run, value in (("clip", 0.65), ("clip_ft", 0.8), ("hn", 0.9 + 0.01 * seed)):
            study_results.add(values, f"{run}-{seed}", of("NVIDIA H100 80GB HBM3", value))
        study_results.add(values, f"siglip-{seed}", of("cpu", 0.4 + 0.1 * seed))
    results = prose_of(tmp_path, values).results
    columns = [study_columns.Column("attributes", "scenes_attribute_swap", "accuracy", 0.5)]

    def rows(*runs):
        return study_page.table(results, runs, columns).splitlines()[3:]

    assert rows("clip", "clip_ft") == ["| CLIP | 60.0 ±0.0 |", "| CLIP-FT | 70.0 ±0.0 |"]
    results.prefer = "H100"
    assert rows("clip", "clip_ft") == ["| CLIP | 65.0 ±0.0 |", "| CLIP-FT | 80.0 ±0.0 |"]
    assert rows("clip", "siglip") == [
        "| CLIP, H100 | 65.0 ±0.0 |",
        "| SigLIP, CPU | 50.0 ±24.8 (not resolved) |",
    ]
    of_one = results.difference("hn", "clip_ft", "scenes_attribute_swap", "accuracy")
    of_two = results.difference("hn", "siglip", "scenes_attribute_swap", "accuracy")
    welch = scipy.stats.ttest_ind([0.9, 0.91, 0.92], [0.4, 0.5, 0.6], equal_var=False)
    low, high = welch.confidence_interval()
    assert of_one.mean == pytest.approx(0.11)
    assert of_two == pytest.approx((0.41, (high - low) / 2))


def test_a_wide_interval_is_not_resolved_and_fewer_seeds_are_named(tmp_path):
    values = {"smollm-0": of_swap(0.9)}
    values |= {f"hn-{seed}": of_swap(0.5 + 0.2 * seed) for seed in range(3)}
    values |= {f"{run}-{seed}": of_swap(0.7) for run in ("clip", "clip_ft") for seed in range(3)}
    prose = prose_of(tmp_path, values)
    results = prose.results
    columns = [study_columns.Column("attributes", "scenes_attribute_swap", "accuracy", 0.5)]
    smollm, hn = study_page.table(results, ["smollm", "hn"], columns).splitlines()[3:]
    assert smollm == "| smollm, 1 seed | 90.0 ±2.0 |"
    assert hn == "| HN | 70.0 ±49.7 (not resolved) |"
    mark, of_hn = " (not resolved)", ("hn", "attributes")
    assert prose.n(*of_hn) == "70" + mark
    assert prose.pm(*of_hn) == "70.0 ±49.7" + mark
    assert prose.d("hn", "clip_ft", "attributes") == "+0.0 ±49.7" + mark
    assert prose.points(prose.x(*of_hn), prose.x("clip", "attributes")) == "+0.0" + mark
    assert prose.score("hn", columns[0].benchmark, "accuracy") == "0.70" + mark
    table = study_page.measures(results, ["hn"], [("swaps", *columns[0][1:3])])
    assert "0.700 ±0.497" + mark in table
    assert study_page.gains(results, [("hn", "clip_ft")], columns).count(mark) == 1
    row = method_tables.rewritten("<!-- table: readme --><!-- end -->", prose)
    assert "| `hn` | 70 (not resolved) (70) |  |  |" in row
    assert study_prose.unnested(f"70 (70{mark})") == "70 (70, not resolved)"
    (axes,) = study_figures._bars(results, ["clip", "hn"], columns, None).axes
    assert axes.get_ylabel().endswith("pale: not resolved")
    assert [bar.get_alpha() for bar in axes.patches] == [1, study_figures.PALE]


@pytest.mark.parametrize(("half", "marked"), [(0.1994, False), (0.1996, True), (0.2, True)])
def test_an_interval_that_is_printed_as_20_is_not_resolved(half, marked):
    value = study_results.Value(0.5, half)
    assert ("not resolved" in study_results.cell(value)) == marked


def finished(out, run, value):
    """The folder of a finished run of a study."""
    folder = out / run.name / "evals" / "scenes_attribute_swap"
    folder.mkdir(parents=True, exist_ok=True)
    metric = dict(zip(("value", "low", "high"), [value, value - 0.02, value + 0.02], strict=True))
    (folder / "2.json").write_text(json.dumps({"metrics": {"accuracy": metric}}))
    (out / run.name / study_results.REQUEST).write_text(json.dumps(study.request(run, out, ())))
    times = ("2026-11-27T13:44:24+00:00", "2026-11-27T13:45:46+00:00")
    (out / run.name / "events.jsonl").write_text("".join(f'{{"time": "{t}"}}\n' for t in times))
    (out / run.name / "env.json").write_text(json.dumps({"hardware": {"devices": ["one chip"]}}))
    (out / run.name / "DONE").touch()
    return True


def test_values_of_a_run_are_kept_when_it_ends_whatever_becomes_of_the_others(
    tmp_path, monkeypatch
):
    def train(run, out, *_):
        return run.name != "hn_hues-0" and finished(out, run, 0.75)

    monkeypatch.setattr(study, "train", train)
    plan, kept = study_plan.plan("c", 1), []
    for jobs in (1, 2):
        values = tmp_path / f"{jobs}.json"
        failed = study.Study(plan, tmp_path / str(jobs), jobs, (), values).run()
        assert failed == ["hn_hues-0"]
        kept.append(values.read_bytes())
    assert kept[0] == kept[1]  # however many at a time
    read = study_results.read_values(values)
    assert {*read} == {"clip_hues-0", "clip_ft_hues-0", "hp_hn_hues-0"}
    record = {"config": "scenes/clip:world=scenes-hues", "device": "one chip", "seconds": 82}
    assert read["clip_hues-0"] == of_swap(0.75) | {study_results.RECORD: record}
    assert [run.name for run in study_plan.remaining(plan, values)] == ["clip_hues-0", "hn_hues-0"]


def test_a_run_is_made_again_if_its_config_or_the_machine_of_its_base_is_another(tmp_path):
    plan = study_plan.plan("c", 1)
    made = {run.name: {"config": run.config, "device": "cpu"} for run in plan}
    names = [run.name for run in plan]

    def left(**changes):
        records = made | {name: made[name] | change for name, change in changes.items()}
        values = {name: {study_results.RECORD: record} for name, record in records.items()}
        study_results.write_values(tmp_path / "kept.json", values)
        return [run.name for run in study_plan.remaining(plan, tmp_path / "kept.json")]

    assert left() == []
    assert left(**{"hn_hues-0": {"config": "hn"}}) == ["clip_hues-0", "hn_hues-0"]
    assert left(**{"clip_hues-0": {"config": "scenes/clip:steps=9"}}) == names
    assert left(**{"clip_hues-0": {"device": "gpu"}}) == names


def test_files_of_values_are_merged_and_the_last_one_wins(tmp_path):
    files = [tmp_path / f"{n}.json" for n in range(3)]
    for file, names in zip(files, (("a", "b"), ("b", "c"), ("c",)), strict=True):
        study_results.write_values(file, {name: {"of": file.name} for name in names})
    study.merge(files[0], files[1:])
    merged = study_results.read_values(files[0])
    assert {name: of["of"] for name, of in merged.items()} == {
        "a": "0.json", "b": "1.json", "c": "2.json"
    }  # fmt: skip
    with pytest.raises(ValueError, match=r"no file .*absent\.json"):
        study.merge(files[0], [tmp_path / "absent.json"])


def test_conditions_of_an_ideal_clip_have_a_row_each_with_noise_floors(tmp_path):
    metrics = {f"satisfied/{name}": [0.8, 0.7, 0.9, 0.5] for name in study_columns.CONDITIONS}
    metrics |= {"difference/2.1": [0.03, 0, 0, 0.01], "noise_ratio/2.1": [1.5, 0, 0, None]}
    assert {*study_columns.CONDITIONS} == {*scene_geometry.CONDITIONS}
    values = {f"clip_geometry-{seed}": {"scenes_conditions": metrics} for seed in range(3)}
    lines = study_page.conditions(prose_of(tmp_path, values).results, ["clip_geometry"])
    rows = {line.split("|")[1].split(":")[0].strip(): line for line in lines.splitlines()[2:]}
    assert len(rows) == len(study_columns.CONDITIONS)
    assert rows["2.1"].endswith("| 50.0 | 80.0 ±0.0 (0.030; floor 0.020) |")
    assert rows["4.2 all"].endswith("| 50.0 | 80.0 ±0.0 |")


def test_every_head_has_its_rows_in_the_page():
    names = {run.name for run in study_plan.runs("d") if run.tool == "train"}
    heads = (*study_columns.HEAD_RUNS, *study_columns.CAPTION_RUNS)
    shown = {f"{name}{suffix}" for name in heads for suffix in ("", "_relations")}
    assert names == shown | {"clip_mean", "hard_images_mean", "relations_mean"}
    assert all(study_columns.label(name) != name for name in names - {"hard_images_mean"})


@pytest.mark.slow
def test_heads_of_a_study_train_on_what_other_runs_store(tmp_path, monkeypatch):
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
    assert study.Study(todo, tmp_path, 1, small).run() == []
    assert all((tmp_path / run.name / "DONE").exists() for run in todo)


@pytest.mark.slow
def test_a_study_goes_on_where_it_stopped_and_writes_its_page(tmp_path):
    small = (
        *("--config.steps=2", "--config.batch_size=8", "--config.optimizer.warmup_steps=1"),
        *("--config.input.scenes.count=32", "--config.input.preview=4", "--config.log_every=1"),
        *("--config.eval.batch_size=16", "--config.model.image={'depth': 1}"),
        "--config.model.text={'depth': 1}",
        f"--config.evals={scenes.evaluations('test', 8, 8, 'scenes-hues')}",
    )

    def run(*more):
        return helpers.python(
            *("studies/study.py", "--out", tmp_path, "--parts", "c"),
            *("--seeds", "1", "--docs", tmp_path / "docs", *small, *more),
        )

    broken = run("--config.losses.analogy.weight=0.5")  # only HP+HN has that loss
    assert broken.returncode == 1
    assert "clip_hues-0" in broken.stderr
    other = run()
    assert other.returncode == 2
    assert "has other settings: flags" in other.stderr
    shutil.rmtree(tmp_path / "clip_hues-0")
    done = run()
    assert done.returncode == 0, done.stderr
    page = study_page.render(study_results.Results(tmp_path, 1), study_page.NOTES, "c")
    assert all(f"| {name} |" in page for name in ("CLIP", "CLIP-FT", "HN", "HP+HN"))
    assert (tmp_path / "hn_hues-0" / "DONE").exists()
    before = (tmp_path / "hn_hues-0" / "events.jsonl").read_text()
    assert run().returncode == 0
    assert (tmp_path / "hn_hues-0" / "events.jsonl").read_text() == before
