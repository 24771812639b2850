"""`--mode eval` and other readers leave a run as it was, and refuse what is not its state."""

import json
import shutil

import pytest

from tests.support import helpers

pytestmark = pytest.mark.slow


@pytest.fixture
def run(trained, tmp_path):
    """A copy, to do harm to."""
    return shutil.copytree(trained, tmp_path / "run")


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--config.model.activation=gelu",), "model.activation: None -> gelu"),
        (("--config.input.normalisation=imagenet",), "input.normalisation: clip -> imagenet"),
        (("--config.interpolate={'othr': 'x'}",), "did you mean 'other'"),
        (("--config.interpolate={'other': 'x', 'alpha': 0.5}",), "lists shares from 0 to 1"),
    ],
)
def test_a_request_that_is_not_the_runs_is_refused(run, flags, words):
    before = contents(run / "evals")
    done = helpers.run(helpers.TINY + ":steps=6", run, "--mode=eval", *flags)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert contents(run / "evals") == before
    assert (run / "DONE").exists()


def test_another_question_is_filed_beside_the_first(run):
    """Without a config: the fields of the run's own are changed on the command line."""
    unfinished = run / "evals/scenes_retrieval/6.json"
    files = (run / "evals/scenes_attribute_swap").iterdir()
    kept = {path: path.read_bytes() for path in files if path.is_file()}
    first = json.loads(unfinished.read_text())["metrics"]
    unfinished.unlink()
    own = json.loads((run / "config.json").read_text())["evals"]
    asked = {
        **own,
        "other": {"reader": "scenes_retrieval", "count": 8},
        "scenes_attribute_swap": {"split": "test", "count": 32},
        "scenes_conditions": {"count": 32},
        "scenes_superposition": {"count": 8},
        "near": {"reader": "scenes_whatsup", "count": 8, "geometry": True},
        "tokens": {"reader": "scenes_objects", "count": 8, "tokens": True},
    }
    done = helpers.python(
        *("-m", "vlc_jax.main", "--mode", "eval", "--workdir", run, f"--config.evals={asked}")
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(unfinished.read_text())["metrics"] == first
    assert {path: path.read_bytes() for path in kept} == kept
    (beside,) = (run / "evals").glob("scenes_attribute_swap@*")
    result = json.loads((beside / "6.json").read_text())
    assert (result["options"]["split"], result["reader"]) == ("test", "scenes_attribute_swap")
    named = json.loads((run / "evals/other/6.json").read_text())
    assert (named["protocol"], named["metrics"]["image_to_text_r1"]["count"]) == ("retrieval", 8)
    assert f"{beside.name}: evals/scenes_attribute_swap has results of " in done.stdout
    page = (run / "report.md").read_text()
    assert "split test; count 32" in page
    assert "- other: reader scenes\\_retrieval; count 8" in page
    events = [row for row in helpers.rows(run / "events.jsonl") if row["event"] == "evaluation"]
    made = {row["benchmark"] for row in events[-7:]}
    geometry = {"scenes_conditions": "satisfied/2.3", "scenes_superposition": "cone"}
    geometry |= {"near": "image_cosine", "tokens": "map_accuracy"}
    assert made == {"other", beside.name, "scenes_retrieval", *geometry}
    for name, metric in geometry.items():
        metrics = json.loads((run / f"evals/{name}/6.json").read_text())["metrics"]
        assert metric in metrics
    assert metrics["pooled_accuracy"]["value"] == metrics["accuracy"]["value"]


def test_a_failed_evaluation_leaves_a_finished_run_finished(run):
    mixed = "--config.interpolate={'other': '/nowhere.pt'}"
    done = helpers.run(helpers.TINY + ":steps=6", run, "--mode=eval", mixed)
    assert done.returncode == 3, done.stderr
    assert "no weights at /nowhere.pt" in done.stderr
    assert (run / "DONE").exists()
    assert not (run / "FAILED").exists()


def test_reading_a_damaged_workdir_changes_nothing_in_it(run):
    newest = run / "checkpoints/6"
    shutil.copytree(newest, run / "checkpoints/5")
    (newest / "manifest.json").write_text("{}")
    before = contents(run)
    done = helpers.run(helpers.TINY + ":steps=6", run.parent / "new", f"--config.init_from={run}")
    assert done.returncode == 0, done.stderr
    log = (run.parent / "new/logs/host_000.log").read_text()
    assert f"{run}: step 6 is damaged (" in log
    assert "), step 5 is used" in log
    assert contents(run) == before


def test_a_batch_that_the_records_do_not_fill_is_said(tmp_path):
    flags = ("--config.input.scenes.count=12", "--config.evals={}")
    done = helpers.run(helpers.TINY + ":steps=6", tmp_path / "run", *flags)
    assert done.returncode == 0, done.stderr
    assert 'batch_beyond_source {"batch_size": 16, "records": 12, "effect":' in done.stderr
    assert "each counts as a negative of its repeats" in done.stderr
    assert "losses.infonce.duplicates=mask, or config.batch_size to 12 at most" in done.stderr


def test_a_run_is_watched_from_another_folder(trained, tmp_path):
    """Without a config: that of the run; the second time in another folder, from the cache."""
    before = contents(trained)
    for name in ("first", "second"):
        flags = ("--mode=eval", f"--watch={trained}", f"--config.eval.cache={tmp_path / 'cache'}")
        done = helpers.python(
            *("-m", "vlc_jax.main", "--workdir", tmp_path / name, *flags), devices=1
        )
        assert done.returncode == 0, done.stderr
        for path in (trained / "evals").glob("*/6.scores.jsonl"):
            assert helpers.rows(tmp_path / name / path.relative_to(trained)) == helpers.rows(path)
    assert contents(trained) == before
    files = list((tmp_path / "cache").glob("*/*.npz"))
    assert {path.parent.name.split("-")[0] for path in files} == {"image", "text"}
    wrong = helpers.run(helpers.TINY, trained, "--mode=eval", f"--watch={trained}")
    assert wrong.returncode == 2
    assert "holds another run" in wrong.stderr
