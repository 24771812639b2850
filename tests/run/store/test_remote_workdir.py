"""The end of a run in a store."""

import json

import pytest

from tests.support.disk_store import on_disk
from vlc_jax.input_pipeline.stores import StoreError, any_path
from vlc_jax.input_pipeline.stores.any_path import StorePath
from vlc_jax.run.store.remote_workdir import RemoteWorkdir


@pytest.mark.parametrize("is_down", [True, False])
def test_a_store_that_is_down_at_the_end_is_not_waited_for_again(
    tmp_path, monkeypatch, capsys, is_down
):
    remote = on_disk(tmp_path / "remote")
    monkeypatch.setenv("VLC_STORES", str(tmp_path / "stores"))
    monkeypatch.setattr(any_path, "of", lambda url: remote)
    run = RemoteWorkdir("gs://bucket/run", 0)
    (run.path / "DONE").write_text("{}")
    calls = []

    def fail(*args):
        calls.append(args)
        raise StoreError("gs://bucket: 503")

    if is_down:
        monkeypatch.setattr(StorePath, "write_bytes", fail)
        monkeypatch.setattr(StorePath, "upload", fail)
    run.close()
    # of the last file; the next job takes the lock after its owner was silent
    assert len(calls) == is_down
    assert json.loads((remote / "lock/000001.json").read_bytes())["is_over"] == (not is_down)
    assert ("are only in" in capsys.readouterr().err) == is_down
