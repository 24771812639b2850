"""Every shipped config is trained for two shrunken steps."""

import re

import pytest
from ml_collections import ConfigDict

from tests.support import helpers
from tests.support.configs import CASES, load, shrink
from tests.support.training import train
from vlc_jax.setup import resolve
from vlc_jax.tools import cache_features

slow = pytest.mark.slow


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """The workdir of a shrunken run that methods start from."""
    folder = tmp_path_factory.mktemp("pretrained")
    config = shrink(load("configs/scenes/clip.py", folder), folder)
    return train(config, folder / "run")


FAST = ("configs/hp_hn.py",)


# Configs of published weights are trained in end_to_end/test_methods.py, test_heads_recipes.py and
# test_xvlm_training.py, LLaVA in end_to_end/test_llava_evaluation.py, pretraining in
# test_pretraining.py; those of evaluations train nothing of their own.
ELSEWHERE = re.compile(".*:data=|configs/(llava|pretrain|eval)/|configs/(clip_coco|siglip_ft).py")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=() if case in FAST else slow)
        for case in CASES
        if not ELSEWHERE.match(case)
    ],
)
def test_config_trains_two_steps(case, pretrained, tmp_path):
    config = shrink(load(case, tmp_path), tmp_path)
    with config.unlocked():
        if config.pretrain:
            config.init_from = str(pretrained)
        if case == "configs/clic.py":
            config.input.source_options.base_options.count = 32
        if case != "configs/scenes/clip.py":  # which evaluates every benchmark
            config.evals = ConfigDict({name: config.evals[name] for name in [*config.evals][:1]})
    workdir = train(config, tmp_path / "run")
    assert (workdir / "DONE").exists()
    (row,) = helpers.rows(workdir / "metrics.jsonl")
    for name in config.losses:
        assert row[f"train/{name}"] > 0
    for name in config.evals:
        assert (workdir / "evals" / name / "2.json").exists()
    if case == "configs/clic.py":
        assert_stored_images_train_alike(config, row, tmp_path)


def assert_stored_images_train_alike(config, row, folder):
    """Two images side by side, and the first alone, from features of the frozen image tower."""
    manifest = cache_features.store(resolve(config), folder / "features", "float32", 64)
    assert manifest["count"] == 64  # pairs, and the first image of each
    with config.unlocked():
        config.evals = ConfigDict()
        config.input.source = "features"
        config.input.source_options = ConfigDict({"path": str(folder / "features")})
    (stored,) = helpers.rows(train(config, folder / "stored") / "metrics.jsonl")
    expected = {f"train/{name}": row[f"train/{name}"] for name in config.losses}
    assert {name: stored[name] for name in expected} == pytest.approx(expected, rel=1e-4)
