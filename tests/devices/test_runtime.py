"""The port that the processes of a run connect through."""

import socket

import pytest

from vlc_jax.devices import runtime
from vlc_jax.errors import PeerError, UsageError


def test_a_port_in_use_is_named_before_anything_waits_for_it():
    with socket.socket() as other:
        other.bind(("", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(PeerError, match=f"port {port} of --coordinator=127.0.0.1:{port} "):
            runtime.check_port(f"127.0.0.1:{port}", seconds=0.0)
    runtime.check_port(f"127.0.0.1:{port}")


@pytest.mark.parametrize("coordinator", ["localhost", "localhost:", "localhost:x", ":0", "a:99999"])
def test_a_coordinator_without_a_port_is_refused(coordinator):
    with pytest.raises(UsageError, match=r"host:port of process 0; got '"):
        runtime.check_port(coordinator)
