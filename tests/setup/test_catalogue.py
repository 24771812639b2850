"""Short names of configs, and the list of all that can be named."""

import importlib.metadata
import runpy
import sys

import pytest

from tests.support import helpers
from tests.support.configs import CONFIGS
from vlc_jax import errors, losses, main, models
from vlc_jax.__main__ import COMMANDS, cli
from vlc_jax.input_pipeline import benchmarks
from vlc_jax.input_pipeline.sources import SOURCES
from vlc_jax.input_pipeline.tokenizers import TOKENIZERS
from vlc_jax.models import variants
from vlc_jax.run import startup
from vlc_jax.setup import catalogue, command_line


@pytest.mark.parametrize("name", ["scenes/clip", "configs/scenes/clip", "configs/scenes/clip.py"])
def test_a_config_has_a_short_name_wherever_one_is(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = str(helpers.ROOT / "configs/scenes/clip.py")
    assert catalogue.find_config(name) == expected
    assert catalogue.find_config(f"{name}:steps=5") == f"{expected}:steps=5"
    argv = command_line.with_config_paths(["x", "--config", f"{name}:steps=5", "--config.steps=3"])
    assert argv == ["x", "--config", f"{expected}:steps=5", "--config.steps=3"]
    assert command_line.with_config_paths(["x", f"--config={name}"])[1] == f"--config={expected}"


def test_a_file_of_ones_own_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.py").touch()
    assert catalogue.find_config("digits.py:steps=2") == "digits.py:steps=2"
    assert catalogue.find_config("digits") == "digits.py"


def test_modules_beside_a_config_are_found_behind_all_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", before := ["elsewhere"])
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "exp.py").touch()
    command_line.with_config_paths(["x", "--config", "scenes/clip"])
    assert sys.path == before
    command_line.with_config_paths(["x", "--config=my/exp.py:steps=2"])
    assert sys.path == ["elsewhere", str(tmp_path / "my"), str(tmp_path)]


def test_an_unknown_config_names_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("scenes/hphn", "coco/hp_hn", "scenes/hp_hn_swap_only", "configs/scenes/hp_hn.py"):
        with pytest.raises(errors.UsageError, match="did you mean 'hp_hn'"):
            catalogue.find_config(f"{name}:steps=2")


def test_the_list_has_all_of_them():
    text = catalogue.listing()
    configs = text.partition("\nNames ")[0].splitlines()
    for path in CONFIGS:
        name = str(path.relative_to(helpers.ROOT / "configs").with_suffix(""))
        (line,) = [line for line in configs if line.startswith(f"  {name}: ")]
        assert not line.endswith("et al.")
    tables = (SOURCES, TOKENIZERS, losses.LOSSES, models.HEADS, variants.VARIANTS)
    tables += (benchmarks.READERS,)
    for name in (name for table in tables for name in table):
        assert name in text
    assert "  siglip: path, eos_token, pad_token, clean\n" in text


def test_the_console_script_is_the_command(monkeypatch):
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="vlc-jax")
    called = []
    monkeypatch.setattr(main, "cli", called.append)
    monkeypatch.setattr(startup, "install", lambda is_run: None)  # signal handlers, of this process
    monkeypatch.setattr(sys, "argv", ["vlc-jax", "--config", "scenes/clip"])
    script.load()()
    (commands,) = called  # the text that --help ends with
    assert "vlc-jax report" in commands


def test_list_with_a_name_is_a_tool_of_its_own(monkeypatch):
    called = []
    monkeypatch.setattr(runpy, "run_module", lambda name, **_: called.append(name))
    monkeypatch.setattr(startup, "install", lambda is_run: None)
    monkeypatch.setattr(sys, "argv", ["vlc-jax", "--list", "svlc"])
    cli()
    assert (called, sys.argv[1:]) == (["vlc_jax.tools.list_config"], ["svlc"])


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_help_that_begins_with_its_name(name):
    done = helpers.python("-m", "vlc_jax", name, "--help")
    assert done.returncode in (0, 1), done.stderr  # absl's own --help ends with 1
    assert f"vlc-jax {name}" in done.stdout


def test_an_unknown_command_names_the_nearest():
    done = helpers.python("-m", "vlc_jax", "reprot", "runs/a")
    assert (done.returncode, done.stdout) == (2, "")
    assert "'report'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_second_config_is_refused():
    words = ["x", "--config", "scenes/clip", "--config=scenes/siglip"]
    with pytest.raises(errors.UsageError, match="--config is there 2 times: leave all but one"):
        command_line.with_config_paths(words)
