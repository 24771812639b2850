"""Every shipped config is trained for two shrunken steps."""

import re

import pytest
from ml_collections import ConfigDict

from tests.support import helpers
from tests.support.configs import CASES, load, shrink
from tests.support.training import train

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
# test_pretraining.py.
ELSEWHERE = re.compile(
    ".*:data=|configs/(llava|pretrain)/|configs/(clip_coco|siglip_ft|eval/llava).py"
)


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
        if case != "configs/scenes/clip.py":  # which evaluates every benchmark
            config.evals = ConfigDict({name: config.evals[name] for name in [*config.evals][:1]})
    workdir = train(config, tmp_path / "run")
    assert (workdir / "DONE").exists()
    (row,) = helpers.rows(workdir / "metrics.jsonl")
    for name in config.losses:
        assert row[f"train/{name}"] > 0
    for name in config.evals:
        assert (workdir / "evals" / name / "2.json").exists()
