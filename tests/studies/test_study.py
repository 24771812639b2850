"""The study: its plan, its page, and a shrunken part of it from the command line."""

import json
import re
import shutil
import sys

import numpy as np
import pytest
import scipy.stats

from studies import study, study_columns, study_page, study_plan, study_results
from tests.support import forks, helpers
from vlc_jax.configs.common import scenes
from vlc_jax.configs.eval import all as suite
from vlc_jax.configs.scenes import llava


def test_every_run_comes_after_the_one_it_starts_from():
    plan = study_plan.plan("".join(study_plan.PARTS), (0, 1, 2))
    names = [run.name for run in plan]
    assert len(set(names)) == len(names)
    for run in plan:
        assert all(names.index(name) < names.index(run.name) for name in run.needed)
        assert all(name.endswith(f"-{run.seed}") for name in (run.name, *run.needed))


def test_every_run_of_a_finding_and_of_the_sweep_is_in_both_worlds_of_the_plan():
    of_findings = {name for _, run, other, *_ in study_page.FINDINGS for name in (run, other)}
    for part, suffix in (("b", ""), ("e", "_synonyms")):
        planned = {run.name for run in study_plan.runs(part)}
        assert {f"{name}{suffix}" for name in of_findings | {*study_columns.SWEEP}} <= planned
    weights = [run.config for run in study_plan.runs("b") if "hn_weight" in run.config]
    assert len(weights) == 2 * len(study_plan.NEGATIVE_WEIGHTS)


def test_a_run_that_was_asked_for_otherwise_is_refused(tmp_path):
    (run,) = (run for run in study_plan.plan("a", (0,)) if run.name == "negclip-0")

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
    todo = study_plan.plan("c", (0,))
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
    values = (0.5, 0.6, 0.7)
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
    assert value == pytest.approx((0.5, 0.02))


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
    todo = study_plan.plan("c", (0,))
    assert study_plan.remaining(todo, kept) == todo
    kept.write_text(json.dumps({run.name: {} for run in todo if run.name != "hn_hues-0"}))
    assert [run.name for run in study_plan.remaining(todo, kept)] == ["clip_hues-0", "hn_hues-0"]
    kept.write_text(json.dumps({run.name: {} for run in todo}))
    assert study_plan.remaining(todo, kept) == []
    heads = study_plan.plan("d", (0,))
    kept.write_text(json.dumps({run.name: {} for run in heads if run.tool == "train"}))
    assert study_plan.remaining(heads, kept) == []


def test_embeddings_are_asked_of_a_run_that_is_done_with_benchmarks_that_the_page_shows(tmp_path):
    run = next(run for run in study_plan.plan("g", (1,)) if run.name == "clip_geometry-1")
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


def test_the_page_of_heads_has_those_that_are_done(tmp_path):
    for run in ("clip_mean", "dcsm", "relations_mean", "pacl_relations"):
        for column in study_columns.HEADS:
            metrics = {column.metric: {"value": 0.75, "low": 0.7, "high": 0.8}}
            folder = tmp_path / f"{run}-0" / "evals" / column.benchmark
            folder.mkdir(parents=True, exist_ok=True)
            path = folder / "9.json"
            before = json.loads(path.read_text())["metrics"] if path.exists() else {}
            path.write_text(json.dumps({"metrics": before | metrics}))
        (tmp_path / f"{run}-0" / "DONE").touch()
    page = (
        study_page.write(tmp_path, tmp_path / "docs", 1, "d").with_name("lab_notes.md").read_text()
    )
    section = page[page.index("## Heads on frozen towers") :]
    shown = [line.split("|")[1].strip() for line in section.splitlines() if "75.0" in line]
    cosine = "cosine of the towers"  # of either base, in both pairs of tables
    assert shown == [cosine, "DCSM", cosine, "PACL", cosine, cosine, "PACL"]


def test_sections_of_other_parts_stay_as_they_are(tmp_path):
    study_page.write(tmp_path, tmp_path, 1, "abcd")
    headings = {
        "results.md": ("## Is CLIP", "## Which heads"),
        "lab_notes.md": ("## Bags", "## Heads"),
    }
    pages = {name: (tmp_path / name).read_text() for name in headings}
    for name, (of_a, of_d) in headings.items():
        text = pages[name].replace(of_a, "## Old").replace(of_d, "## Old")
        assert text.count("## Old") == 2
        (tmp_path / name).write_text(text)
    study_page.write(tmp_path, tmp_path, 1, "d")
    for name, (of_a, _) in headings.items():
        assert (tmp_path / name).read_text() == pages[name].replace(of_a, "## Old")


def _rows(page):
    """Label -> cells with an interval, of all tables of a page."""
    rows = {}
    for line in page.splitlines():
        if line.startswith("|") and "±" in line:
            label, *cells = line.strip("| ").split(" | ")
            rows.setdefault(label, []).extend(cells)
    return rows


def test_every_value_of_an_answer_is_in_the_laboratory_notes_under_the_same_name():
    docs = helpers.ROOT / "docs"
    answers, notes = (_rows((docs / name).read_text()) for name in study_page.PAGES)
    assert len(answers) > 20
    for label, cells in answers.items():
        assert {*cells} <= {*notes[label]}, label


def test_every_answer_is_short_and_links_to_a_heading_of_the_notes():
    answers, notes = ((helpers.ROOT / "docs" / name).read_text() for name in study_page.PAGES)
    assert len(answers.split()) <= 2500
    headings = re.findall(r"^##+ (.*)$", notes, re.MULTILINE)
    anchors = {re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-") for title in headings}
    for question in answers.split("\n## ")[1:]:
        assert question.splitlines()[0].endswith("?")
        (anchor,) = re.findall(r"\[Notes\]\(lab_notes\.md#([a-z0-9-]+)\)", question)
        assert anchor in anchors


def test_the_pages_have_the_paragraphs_of_their_templates():
    for name in study_page.PAGES:
        template = (helpers.ROOT / "studies" / f"{name}.jinja").read_text()
        page = " ".join((helpers.ROOT / "docs" / name).read_text().split())
        paragraphs = [" ".join(part.split()) for part in re.split(r"\n\n|\n- ", template)]
        fixed = [text for text in paragraphs if "{" not in text and "not run yet" not in text]
        assert len(fixed) > 20
        assert [text for text in fixed if text not in page] == []


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
    runs = {run.name: run for run in study_plan.plan("d", (0,))}
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
    page = (tmp_path / "docs" / "lab_notes.md").read_text()
    assert all(f"| {name} |" in page for name in ("CLIP", "CLIP-FT", "HN", "HP+HN"))
    assert (tmp_path / "hn_hues-0" / "DONE").exists()
    before = (tmp_path / "hn_hues-0" / "events.jsonl").read_text()
    assert run().returncode == 0
    assert (tmp_path / "hn_hues-0" / "events.jsonl").read_text() == before
