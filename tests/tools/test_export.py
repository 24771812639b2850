"""An exported folder is pushed to the hub, after everything that can be refused is refused."""

import signal

import pytest

from vlc_jax.input_pipeline.stores import fetch
from vlc_jax.tools import export


@pytest.fixture
def pushing(monkeypatch, tmp_path):
    """The command with --push of an export that writes one file; returns its exit code."""

    def write(workdir, target, out, python, platforms):
        out.mkdir()
        (out / "model.safetensors").write_bytes(b"1")
        return ["model.safetensors"], "same scores"

    def push(repository):
        words = ["--workdir", str(tmp_path), "--to", "hf", "--out", str(tmp_path / "out")]
        try:
            export.main([*words, "--push", repository])
        except SystemExit as error:
            return error.code
        return 0

    monkeypatch.setattr(export, "export", write)
    # the command sets its own for the process
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    return push


def test_an_exported_folder_is_a_commit_of_a_repository(pushing, hub, capsys):
    assert pushing("hf://me/new") == 0
    address = capsys.readouterr().out.splitlines()[-1].removeprefix("pushed to ")
    assert address.startswith("hf://me/new@")
    assert (fetch.local(address) / "model.safetensors").read_bytes() == b"1"


def test_without_a_token_nothing_is_exported(pushing, hub, monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("HF_TOKEN", "wrong")
    assert pushing("me/new") == 2
    assert "the hub refuses the token" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_pushed_stays(pushing, hub, tmp_path, capsys):
    hub.closed.add("me/new")
    assert pushing("me/new") in (2, 30)
    assert f"push it with hf upload me/new {tmp_path / 'out'}" in capsys.readouterr().err
    assert (tmp_path / "out").exists()
