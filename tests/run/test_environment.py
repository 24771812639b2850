"""What a run says of its program."""

import subprocess
import sys
import types

from vlc_jax.run import environment


def test_the_commit_is_that_of_the_checkout(tmp_path):
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path))
    (tmp_path / "a").write_text("a")
    for words in (("init", "-q"), ("add", "a"), ("commit", "-qm", "a")):
        subprocess.run([*git, *words], check=True)
    installed = tmp_path / "lib"
    installed.mkdir()
    assert environment._commit(installed) == ""
    (tmp_path / "pyproject.toml").touch()
    assert len(environment._commit(tmp_path)) == 40
    (tmp_path / "a").write_text("b")
    assert environment._commit(tmp_path).endswith("-dirty")


def test_a_run_says_its_command_and_the_versions(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/vlc-jax", "--config.evals={'a': 1}"])
    monkeypatch.setitem(sys.modules, "__main__", types.ModuleType("__main__"))
    found = environment.environment()
    assert found["command"] == """vlc-jax '--config.evals={'"'"'a'"'"': 1}'"""
    assert {"vlc_jax", "jax", "python"} <= found["versions"].keys()
