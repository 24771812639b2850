"""Short names of configs, and the list of all that can be named."""

import importlib.metadata

import pytest

from tests.support import helpers
from tests.support.configs import CONFIGS
from vlc_jax import catalogue, errors, evaluators, losses, main, models, startup
from vlc_jax.models import variants


@pytest.mark.parametrize("name", ["scenes/clip", "configs/scenes/clip", "configs/scenes/clip.py"])
def test_a_config_has_a_short_name_wherever_one_is(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    expected = str(helpers.ROOT / "configs/scenes/clip.py")
    assert catalogue.find_config(name) == expected
    assert catalogue.find_config(f"{name}:steps=5") == f"{expected}:steps=5"
    argv = main.with_config_paths(["x", "--config", f"{name}:steps=5", "--config.steps=3"])
    assert argv == ["x", "--config", f"{expected}:steps=5", "--config.steps=3"]
    assert main.with_config_paths(["x", f"--config={name}"])[1] == f"--config={expected}"


def test_a_file_of_ones_own_comes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits.py").touch()
    assert catalogue.find_config("digits.py:steps=2") == "digits.py:steps=2"
    assert catalogue.find_config("digits") == "digits.py"


def test_an_unknown_config_names_the_nearest(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.UsageError, match="did you mean 'scenes/hp_hn'"):
        catalogue.find_config("scenes/hphn:steps=2")
    with pytest.raises(errors.UsageError, match=r"there is no config file mine\.py"):
        catalogue.find_config("mine.py")


def test_the_list_has_all_of_them():
    text = catalogue.listing()
    for path in CONFIGS:
        name = str(path.relative_to(helpers.ROOT / "configs").with_suffix(""))
        (line,) = [line for line in text.splitlines() if line.startswith(f"  {name}: ")]
        assert not line.endswith("et al.")
    tables = (losses.LOSSES, models.HEADS, variants.VARIANTS, evaluators.EVALUATIONS)
    for name in (name for table in tables for name in table):
        assert name in text


def test_the_console_script_is_the_command(monkeypatch):
    (script,) = importlib.metadata.entry_points(group="console_scripts", name="vlc-jax")
    called = []
    monkeypatch.setattr(main, "cli", lambda: called.append(True))
    monkeypatch.setattr(startup, "install", lambda: None)  # signal handlers, of this process
    script.load()()
    assert called == [True]
