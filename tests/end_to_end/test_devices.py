"""The same run on one device, on eight, sharded, and on two processes: same data, same losses."""

import signal
import socket
import sys

import numpy as np
import pytest

from tests.support import forks, helpers
from tests.support.marks import slow_but
from tests.support.runs import event_names, losses, wait_for

STEPS = "tests/support/tiny.py:steps=6"


def assert_same_losses(workdir, reference):
    """The first step to 1e-6; later ones, which follow from it, to 1e-6 of their value."""
    ours, theirs = losses(workdir), losses(reference)
    assert len(ours) == len(theirs) == 6
    assert abs(ours[0] - theirs[0]) <= 1e-6
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=0)


FLAGS = {
    "data": (),
    "fsdp": ("--config.mesh.data=2", "--config.mesh.fsdp=4"),
    "ring": ("--config.losses.infonce.implementation=ring",),
    "chunked": (
        "--config.losses.infonce.implementation=chunked",
        "--config.losses.infonce.chunk=5",
    ),
    "remat and microbatch": (
        "--config.model.remat=block",
        "--config.mesh.fsdp=8",
        "--config.microbatch=8",
    ),
}


@pytest.mark.parametrize("case", slow_but(("fsdp",), FLAGS))
def test_eight_devices_equal_one(tmp_path, trained, case):
    helpers.run(STEPS, tmp_path / "run", *FLAGS[case], devices=8, code=0)
    assert_same_losses(tmp_path / "run", trained)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_processes(count, devices, workdir, *flags):
    """A run of so many processes with so many devices each."""
    common = (f"--coordinator=127.0.0.1:{free_port()}", f"--num_processes={count}", *flags)
    return [
        helpers.start(STEPS, workdir, *common, f"--process_id={index}", devices=devices)
        for index in range(count)
    ]


def finish(jobs: list[forks.Job]) -> None:
    errors = [job.communicate(timeout=300)[1] for job in jobs]
    assert {job.returncode for job in jobs} == {0}, errors


@pytest.mark.slow
def test_two_processes_of_four_devices_equal_one_device(tmp_path, trained):
    """Each an interpreter with a hash seed of its own."""
    workdir = tmp_path / "run"
    kept = f"--config.eval.cache={tmp_path / 'cache'}"  # which one process writes
    words = ("launch/local.sh", "2", "4", *helpers.words(STEPS, workdir, kept)[2:])
    helpers.program(*words, env={**helpers.environment(), "PYTHON": sys.executable}, code=0)
    assert_same_losses(workdir, trained)
    for name in ("scenes_retrieval", "scenes_attribute_swap"):
        path = f"evals/{name}/6.scores.jsonl"
        ours, theirs = helpers.rows(workdir / path), helpers.rows(trained / path)
        assert [row["id"] for row in ours] == [row["id"] for row in theirs]
        for a, b in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(a["scores"], b["scores"], atol=1e-4)
    files = list((tmp_path / "cache").glob("*/*.npz"))
    assert {path.parent.name.split("-")[0] for path in files} == {"image", "text"}


@pytest.mark.slow
def test_a_signal_to_one_process_while_compiling_stops_both(tmp_path, trained):
    workdir = tmp_path / "run"
    jobs = start_processes(2, 1, workdir)
    wait_for(lambda: "start" in event_names(workdir), *jobs)
    jobs[1].send_signal(signal.SIGTERM)
    errors = [job.communicate(timeout=300)[1] for job in jobs]
    assert [job.returncode for job in jobs] == [75, 75], errors
    assert not (workdir / "DONE").exists()
    finish(start_processes(2, 1, workdir))
    assert_same_losses(workdir, trained)


@pytest.mark.slow
def test_a_run_goes_on_with_other_numbers_of_devices(tmp_path, trained):
    workdir = tmp_path / "run"
    flags = ("--config.checkpoint.every=2",)
    with helpers.start(STEPS, workdir, *flags, devices=8) as job:
        wait_for(lambda: [*workdir.glob("checkpoints/[2-9]")], job)
        job.kill()
    helpers.run(STEPS, workdir, *flags, "--config.mesh.fsdp=2", devices=2, code=0)
    assert_same_losses(workdir, trained)
