"""An object store for tests: Google Cloud Storage's protocol on loopback."""

import socket
import subprocess
import sys
import time
import urllib.request
import uuid

import pytest

from tests.support import helpers


@pytest.fixture(scope="session")
def _emulator(tmp_path_factory):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [sys.executable, "-m", "tests.support.gcs_emulator", str(port)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(words, cwd=helpers.ROOT, **quiet)
    address = f"http://127.0.0.1:{port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", address)
        patch.setenv("TENSORSTORE_GCS_HTTP_URL", address)
        patch.setenv("TENSORSTORE_GOOGLE_AUTH_TEST_MODE", "1")
        patch.setenv("GOOGLE_CLOUD_PROJECT", "test")
        patch.setenv("GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT", "false")  # it asks by gRPC
        patch.setenv("VLC_STORES", str(tmp_path_factory.mktemp("stores")))
        wait_for(address)
        yield address
    process.kill()
    process.wait()


def wait_for(address):
    for _ in range(300):
        try:
            urllib.request.urlopen(address).close()
            return
        except OSError:
            time.sleep(0.1)
    raise TimeoutError(address)


@pytest.fixture
def store(_emulator):
    """The address of an empty folder in an object store."""
    return f"gs://bucket/{uuid.uuid4().hex[:12]}"
