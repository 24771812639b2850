"""A run starts from another run's workdir: an adapter on it is trained, resumed, evaluated."""

import json
import shutil

import numpy as np
import pytest

from tests.support import helpers
from tests.support.runs import losses, saved_params

pytestmark = pytest.mark.slow

LORA = (
    "--config.lora.targets=.*/(query|value|up)/kernel",
    "--config.lora.rank=2",
    "--config.lora.full=logit_scale",
    "--config.optimizer.learning_rate=0.01",
)


def retrieval(workdir, step):
    path = workdir / f"evals/scenes_retrieval/{step}.json"
    return json.loads(path.read_text())["metrics"]["image_to_text_r1"]["value"]


@pytest.fixture(scope="module")
def adapted(trained, tmp_path_factory):
    """A run of six steps that saves an adapter of `trained`."""
    workdir = tmp_path_factory.mktemp("adapted") / "run"
    flags = (f"--config.init_from={trained}", *LORA, "--config.lora.dora=True")
    helpers.run(helpers.TINY + ":steps=6", workdir, *flags, code=0)
    return workdir, flags


def test_only_the_adapter_is_trained_and_saved(trained, adapted):
    workdir, _ = adapted
    saved = saved_params(workdir, 6)
    assert saved.keys() - {"logit_scale"} == {p for p in saved if p.startswith("lora/")}
    assert {p.rpartition("/")[2] for p in saved} == {"a", "b", "magnitude", "logit_scale"}
    assert all(np.abs(x).max() > 0 for path, x in saved.items() if path.endswith("/b"))
    counts = json.loads((workdir / "env.json").read_text())["parameters"]
    assert counts["trained"] == sum(x.size for x in saved.values()) < counts["total"]
    size, whole = (
        sum(f.stat().st_size for f in (w / "checkpoints").rglob("*") if f.is_file())
        for w in (workdir, trained)
    )
    assert size < whole / 4


def test_eight_devices_train_the_adapter_that_one_trains(adapted, tmp_path):
    workdir, flags = adapted
    sharded = (*flags, "--config.mesh.fsdp=2", "--config.steps=3")
    helpers.run(helpers.TINY, tmp_path / "run", *sharded, devices=8, code=0)
    np.testing.assert_allclose(losses(tmp_path / "run"), losses(workdir)[:3], rtol=1e-5)


def test_evaluation_merges_the_adapter(adapted):
    workdir, _ = adapted
    trained = retrieval(workdir, 6)
    helpers.run(helpers.TINY, workdir, "--mode=eval", *adapted[1], code=0)
    assert retrieval(workdir, 6) == trained


def test_another_base_is_refused(trained, adapted, tmp_path):
    workdir, flags = adapted
    other = tmp_path / "other"
    helpers.run(helpers.TINY + ":steps=6", other, "--config.seed=5", code=0)
    moved = tmp_path / "moved"
    shutil.copytree(workdir, moved)
    changed = (f"--config.init_from={other}", *flags[1:])
    done = helpers.run(helpers.TINY, moved, "--mode=eval", *changed, code=3)
    assert "was trained on other weights" in done.stderr
    done = helpers.run(
        helpers.TINY + ":steps=8", moved, *changed, "--allow_config_change=False", code=2
    )
    assert "another config" in done.stderr


def test_a_run_starts_from_all_parameters_of_a_workdir(trained, tmp_path):
    workdir = tmp_path / "run"
    flags = (f"--config.init_from={trained}", "--config.optimizer.learning_rate=0.0")
    helpers.run(helpers.TINY + ":steps=3", workdir, *flags, code=0)
    before, after = saved_params(trained, 6), saved_params(workdir, 3)
    assert all(np.array_equal(before[path], after[path]) for path in before.keys() | after.keys())


def test_mixtures_with_other_weights_are_judged_and_shown(trained, tmp_path):
    workdir = tmp_path / "run"
    flags = (f"--config.init_from={trained}", "--config.optimizer.learning_rate=0.01")
    helpers.run(helpers.TINY + ":steps=6", workdir, *flags, code=0)
    mixed = (f"--config.interpolate.other={trained}", "--config.interpolate.alpha=(0.0,0.5,1.0)")
    done = helpers.run(helpers.TINY + ":steps=6", workdir, *flags, *mixed, code=2)
    assert "belongs to --mode eval" in done.stderr
    done = helpers.run(helpers.TINY + ":steps=6", workdir, "--mode=eval", *flags, *mixed, code=0)
    assert "alpha 0.5" in done.stdout

    def scores(folder, step):
        path = folder / f"evals/scenes_attribute_swap/{step}.scores.jsonl"
        return [row["scores"] for row in helpers.rows(path)]

    folders = [workdir / f"interpolate/{share}" for share in ("0", "0.5", "1")]
    assert scores(folders[0], 6) == scores(trained, 6)
    assert scores(folders[2], 6) == scores(workdir, 6)
    assert scores(folders[1], 6) not in (scores(trained, 6), scores(workdir, 6))
    page = (workdir / "report.md").read_text()
    assert "Between two sets of weights" in page
    assert str(trained) in page
    assert "(report/mixture_scenes_attribute_swap_" in page
    wrong = (mixed[0], "--config.interpolate.alpha=(0.0,1.5)")
    done = helpers.run(helpers.TINY + ":steps=6", workdir, "--mode=eval", *flags, *wrong, code=2)
    assert "shares from 0 to 1" in done.stderr
    assert folders[1].exists()


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (("--config.lora.targets=.*/query/kernel",), 2, "set config.init_from"),
        (
            ("--config.init_from={trained}", "--config.lora.targets=qeury"),
            2,
            "matches no whole name",
        ),
    ],
)
def test_what_does_not_fit_is_refused(trained, tmp_path, flags, code, words):
    workdir = tmp_path / "run"
    done = helpers.run(helpers.TINY, workdir, *(flag.format(trained=trained) for flag in flags))
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(workdir.glob("checkpoints/*"))
