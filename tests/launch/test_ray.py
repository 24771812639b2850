"""launch/ray_jaxtrainer.py: what it refuses, and with Ray a run on one worker."""

import importlib.util
import json

import pytest

from tests.support import helpers

SCRIPT = ("-m", "vlc_jax.launch.ray_jaxtrainer")
RUN = ("--config", f"{helpers.TINY}:steps=2", "--config.optimizer.warmup_steps=1")
has_ray = importlib.util.find_spec("ray") is not None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--workers", "2", "--", *RUN), "2 workers need --gpus or --tpu"),
        (("--workers", "1"), "the following arguments are required: flags"),
    ],
)
def test_a_wrong_request_is_refused(words, says):
    done = helpers.interpreter(*SCRIPT, *words)
    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.skipif(has_ray, reason="Ray is installed")
def test_without_ray_it_says_how_to_install_it():
    done = helpers.interpreter(*SCRIPT, "--workers", "1", "--", *RUN)
    assert done.returncode == 2
    assert 'install it with pip install "ray[train]"' in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(not has_ray, reason='Ray is not installed: pip install "ray[train]"')
@pytest.mark.parametrize(("flag", "code"), [("--config.log_every=1", 0), ("--config.batch=1", 2)])
def test_a_worker_trains_and_its_exit_code_is_returned(tmp_path, flag, code):
    words = ("--config.evals={}", "--config.input.preview=2", flag)
    done = helpers.interpreter(
        *(*SCRIPT, "--workers", "1", "--", *RUN, "--workdir", str(tmp_path / "run"), *words)
    )
    assert done.returncode == code, done.stderr
    assert (tmp_path / "run/DONE").exists() == (code == 0)
    if code == 0:
        assert json.loads((tmp_path / "run/config.json").read_text())["log_every"] == 1
