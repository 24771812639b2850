"""Losses and gradients with hard texts on two processes of four devices are those of one device."""

import socket

import jax
import numpy as np
import pytest
from jax.sharding import AxisType

from tests.losses import gradients
from tests.support import forks, helpers

pytestmark = pytest.mark.slow


def test_two_processes_give_the_gradients_of_one_device(tmp_path):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    out = tmp_path / "out.npz"
    jobs = [
        forks.Job(
            ["-m", "tests.losses.gradients", address, "2", str(index), str(out)],
            helpers.ROOT,
            helpers.environment(devices=4),
        )
        for index in range(2)
    ]
    one = jax.make_mesh((1, 1), ("data", "fsdp"), (AxisType.Auto,) * 2, devices=jax.devices()[:1])
    expected = gradients.compute(one)
    errors = [job.communicate(timeout=300)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [0, 0], errors
    with np.load(out) as found:
        assert set(found) == set(expected)
        for name, value in expected.items():
            largest = np.abs(value).max()  # a gradient is a sum of terms of about this size
            assert largest > 0.1
            np.testing.assert_allclose(found[name], value, atol=1e-5 * largest, err_msg=name)
    np.testing.assert_allclose(expected["ring"], expected["softmax"], rtol=1e-5, atol=1e-5)
