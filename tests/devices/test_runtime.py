"""The port that the processes of a run connect through, and the cache of compiled programs."""

import socket

import jax
import pytest

from vlc_jax.configs import default
from vlc_jax.devices import runtime
from vlc_jax.errors import PeerError, UsageError
from vlc_jax.setup import resolve


def test_a_port_in_use_is_named_before_anything_waits_for_it():
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PeerError, match=f"port {port} of --coordinator=127.0.0.1:{port} "):
            runtime.check_port(f"127.0.0.1:{port}", seconds=0.0)
    runtime.check_port(f"127.0.0.1:{port}")


@pytest.mark.parametrize("rights", [0o700, 0o775, 0o777, 0o1777])
def test_a_compilation_cache_that_everybody_writes_to_is_refused(tmp_path, rights):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(rights)
    before = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(folder))
    try:
        if rights & 0o002:
            with pytest.raises(UsageError, match=r"every user .* chmod o-w "):
                resolve(default.get_config(), "weights")
        else:
            runtime.check_cache()
    finally:
        jax.config.update("jax_compilation_cache_dir", before)


@pytest.mark.parametrize("coordinator", ["localhost", "localhost:", "localhost:x", ":0", "a:99999"])
def test_a_coordinator_without_a_port_is_refused(coordinator):
    with pytest.raises(UsageError, match=r"host:port of process 0; got '"):
        runtime.check_port(coordinator)


@pytest.mark.parametrize(("skips", "value"), [("1", "localhost"), ("", None)])
def test_libtpu_hears_of_no_tpu_where_jax_sees_none(monkeypatch, skips, value):
    monkeypatch.setattr(runtime.os, "environ", {"TPU_SKIP_MDS_QUERY": skips, "TPU_WORKER_ID": "3"})
    runtime.keep_libtpu_quiet()
    assert runtime.os.environ.get("TPU_WORKER_HOSTNAMES") == value
    assert runtime.os.environ["TPU_WORKER_ID"] == "3"
