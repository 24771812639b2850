"""Heads on frozen towers: what is saved, where it starts from, and stored features."""

import json
import shutil

import pytest

from tests.support import helpers
from tests.support.runs import losses, saved_state
from vlc_jax import errors
from vlc_jax.tools import export

pytestmark = pytest.mark.slow

DCSM = "configs/dcsm.py"
SMALL = (
    *("--config.batch_size=16", "--config.sub_batches=2", "--config.optimizer.warmup_steps=1"),
    *("--config.input.scenes.count=24", "--config.input.preview=4", "--config.log_every=1"),
    *("--config.eval.batch_size=16", "--config.checkpoint.every=2"),
    "--config.model.image={'depth': 1, 'pooling': 'mean'}",
    "--config.model.text={'depth': 1}",
    "--config.evals={'scenes_attribute_swap': {'split': 'validation', 'count': 16}}",
)


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    """Workdirs of towers, and of others."""
    folder = tmp_path_factory.mktemp("clip")
    for seed in (0, 1):
        flags = (f"--config.seed={seed}", *(flag for flag in SMALL if "sub_batches" not in flag))
        config = "configs/scenes/clip.py:pooling=mean,steps=2"
        helpers.run(config, folder / str(seed), *flags, code=0)
    return folder / "0", folder / "1"


def train(workdir, towers, *flags, steps=4, **options):
    flags = (f"--config.init_from={towers}", *SMALL, *flags)
    return helpers.run(f"{DCSM}:steps={steps}", workdir, *flags, **options)


@pytest.fixture(scope="module")
def live(clip, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("live") / "run"
    train(workdir, clip[0], code=0)
    return workdir


@pytest.mark.parametrize("head", ["pacl", "sparc"])
def test_the_report_shows_what_a_head_sees_and_nothing_of_clip(clip, live, tmp_path, head):
    small = (flag for flag in SMALL if "sub_batches" not in flag)
    flags = (f"--config.init_from={clip[0]}", *small)
    helpers.run(f"configs/{head}.py:steps=2", tmp_path, *flags, code=0)
    for workdir, scale in ((tmp_path, "weight of the patch"), (live, "similarity"), (clip[0], "")):
        page = (workdir / "report.html").read_text()
        folder = workdir / "evals/scenes_attribute_swap"
        assert page.count('<div class="example ') == 4
        assert page.count(' with-map"') == (4 if scale else 0)
        assert page.count(f'aria-label="The {scale}') == (4 if scale else 0)
        images, maps = (len(list(folder.glob(name))) for name in ("images/*", "maps/*"))
        assert (images, maps) == (6, 6 if scale else 0)


def test_only_the_head_is_saved_and_its_steps_are_counted(live):
    state = saved_state(live, 4)
    assert set(state["params"]) == {"head"}
    assert set(state["batch_stats"]["head"]) == {"mean", "square", "steps"}
    assert state["batch_stats"]["head"]["steps"] == 4
    assert set(state["params"]["head"]).isdisjoint(state["batch_stats"]["head"])


def test_a_head_is_not_exported_as_if_it_were_clips(live, tmp_path):
    with pytest.raises(errors.UsageError, match="scores with the head dcsm, which no format of hf"):
        export.export(live, "hf", tmp_path / "out")


def test_a_run_goes_on_and_refuses_towers_that_changed(clip, tmp_path):
    towers, workdir = tmp_path / "towers", tmp_path / "run"
    shutil.copytree(clip[0], towers)
    train(workdir, towers, steps=2, code=0)
    train(workdir, towers, "--allow_config_change", code=0)
    assert len(losses(workdir)) == 4
    shutil.rmtree(towers)
    shutil.copytree(clip[1], towers)
    done = train(workdir, towers, code=2)
    assert "weights" in done.stderr


def test_stored_features_train_the_same_head(live, clip, tmp_path):
    out = tmp_path / "features"
    helpers.python(
        *("-m", "vlc_jax.tools.cache_features", "--config", DCSM),
        *(f"--config.init_from={clip[0]}", *SMALL, "--out", out, "--dtype", "float32"),
        code=0,
    )
    assert json.loads((out / "manifest.json").read_text())["count"] == 48  # and hard images
    stored = ("--config.input.source=features", f"--config.input.source_options.path={out}")
    train(tmp_path / "run", clip[0], *stored, code=0)
    assert losses(tmp_path / "run") == pytest.approx(losses(live), rel=1e-5)
    done = train(tmp_path / "other", clip[1], *stored, code=2)
    assert "weights" in done.stderr
    done = helpers.run(DCSM, tmp_path / "none", *SMALL, *stored)  # would train towers first
    assert done.returncode == 2
    assert "set config.init_from to the same towers" in done.stderr
    assert not (tmp_path / "none" / "pretrain").exists()
    done = train(
        tmp_path / "more",
        clip[0],
        *stored,
        "--config.input.negatives.count=1",
        "--config.input.negatives.generators={'scenes_swap': 1.0}",
        code=3,
    )
    assert "no features of" in done.stderr
