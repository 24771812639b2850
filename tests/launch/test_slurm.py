"""launch/slurm.sbatch, started by stand-ins of sbatch, srun and scontrol."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys

import pytest

from tests.support import helpers, stand_ins

FLAGS = ("--config", "scenes/clip", "--workdir", "runs/a run")

# Runs the options' command once per task with the variables of a step; ends with the highest code.
SRUN = """
printf '%s\\n' "$@" >"$RECORDS/srun"
while [[ $1 == --* ]]; do shift; done
pids=()
for ((i = 0; i < SLURM_NTASKS; i++)); do
  SLURM_PROCID=$i SLURM_LOCALID=$i SLURM_STEP_NODELIST=127.0.0.1 SLURM_STEP_NUM_NODES=1 "$@" &
  pids+=($!)
done
highest=0
for pid in "${pids[@]}"; do
  wait "$pid"
  code=$?
  ((code > highest)) && highest=$code
done
exit $highest
"""
# Records its arguments and what JAX finds, or ends with $CODE.
PROGRAM = f"""
printf '%s\\n' "$@" >"$RECORDS/program_$SLURM_PROCID"
[[ $CODE ]] && exit "$CODE"
exec {sys.executable} -c '
import os, jax
from vlc_jax.devices import runtime
runtime.connect("auto", None, None)
visible = jax.config.values["jax_cuda_visible_devices"]
found = f"process {{jax.process_index()}} of {{jax.process_count()}} takes GPUs {{visible}}"
print(found + "\\n", end="")  # one write: the tasks share a pipe
'
"""


@pytest.fixture
def job(tmp_path):
    """Runs the file as sbatch does, a copy of it in the folder it was submitted from."""
    for name, body in {"srun": SRUN, "vlc-jax": PROGRAM}.items():
        stand_ins.write(tmp_path / "bin" / name, body)
    stand_ins.write(tmp_path / "bin/scontrol", 'echo "$@" >"$RECORDS/scontrol"')
    script = tmp_path / "slurm_script"
    script.write_text((helpers.ROOT / "launch/slurm.sbatch").read_text())

    def run(*flags, start=subprocess.run, **variables):
        settings = {"RECORDS": tmp_path, "SLURM_NTASKS": 1, "CODE": "", "PYTHONPATH": helpers.ROOT}
        settings |= {"SLURM_JOB_ID": 7, "JAX_PLATFORMS": "cpu", **variables}
        environment = stand_ins.environment(tmp_path / "bin", **settings)
        return start(
            ["bash", script, *flags],
            cwd=tmp_path,  # the folder of a project
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    run.records = lambda name: (tmp_path / name).read_text().splitlines()
    run.is_requeued = lambda: (tmp_path / "scontrol").exists()
    return run


def free_job_id():
    """The id of a job whose port, which JAX derives from it, is free."""
    for number in range(2**12):
        with socket.socket() as one:
            if one.connect_ex(("127.0.0.1", 65535 - 2**12 + 1 + number)):
                return number
    raise OSError("no port is free")


@pytest.mark.slow
def test_two_tasks_become_the_processes_of_one_run(job):
    done = job(*FLAGS, SLURM_NTASKS=2, SLURM_JOB_ID=free_job_id(), SLURM_GPUS_ON_NODE=2)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [
        f"process {i} of 2 takes GPUs 0,1" for i in range(2)
    ]
    for i in range(2):
        assert job.records(f"program_{i}") == ["--coordinator=auto", *FLAGS]
    assert {"--kill-on-bad-exit=0", "--wait=180"} <= {*job.records("srun")}
    assert not job.is_requeued()


@pytest.mark.parametrize(
    ("code", "restarted", "is_requeued"),
    [
        *((75, 0, True), (30, 0, True), (31, 9, True), (75, 10, True)),
        *((30, 10, False), (2, 0, False), (3, 0, False), (10, 0, False), (20, 0, False)),
    ],
)
def test_codes_that_ask_for_it_queue_the_job_again(job, code, restarted, is_requeued):
    done = job(*FLAGS, CODE=code, SLURM_RESTART_COUNT=restarted)
    assert done.returncode == code
    assert job.is_requeued() == is_requeued
    if is_requeued:
        assert job.records("scontrol") == ["requeue 7"]


def test_a_cancelled_job_waits_for_its_tasks(job, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    stand_ins.write(tmp_path / "bin/srun", 'echo ready; read -r <"$RECORDS/pipe"; exit 75')
    started = job(*FLAGS, start=subprocess.Popen)
    assert started.stdout.readline() == "ready\n"
    started.send_signal(signal.SIGTERM)
    with (tmp_path / "pipe").open("w") as pipe:
        pipe.write("saved\n")
    stderr = started.communicate(timeout=60)[1]
    assert started.returncode == 75, stderr
    assert not job.is_requeued()


def test_a_task_of_an_array_is_a_trial_of_a_sweep(job):
    words = ["sweep", "--workdir", "runs/sweep", "--grid", "steps=1,2"]
    done = job(*words, CODE=0, SLURM_ARRAY_TASK_ID=1)
    assert done.returncode == 0, done.stderr
    assert job.records("program_0") == [*words, "--task=1"]


def dry(job, *flags, **variables):
    """The command that a job would run, whose flags exist; and its variable before it."""
    words = shlex.split(job(*flags, VLC_DRY_RUN=1, **variables).stdout)
    start = words.index("srun")
    return words[:start], words[start:], stand_ins.check_flags(words[start:])


@pytest.mark.parametrize(("tasks", "before"), [(1, ["JAX_LOCAL_DEVICE_IDS=0,1,2,3"]), (4, [])])
def test_a_task_has_the_gpus_of_its_node_or_one(job, tasks, before):
    # without the variable JAX takes the GPU of the task's index
    named = {"SLURM_GPUS_ON_NODE": 4, "SLURM_NTASKS_PER_NODE": tasks, "SLURM_CPUS_PER_TASK": 6}
    variable, words, command = dry(job, *FLAGS, **named)
    assert variable == before
    assert "--cpus-per-task=6" in words
    assert command == ["vlc-jax", "--coordinator=auto", *FLAGS]


def test_a_container_sees_the_project_and_more(job, tmp_path):
    mounts = f"{tmp_path}:{tmp_path},/data:/data"
    _, _, command = dry(job, *FLAGS, VLC_CONTAINER="vlc.sif", VLC_MOUNTS="/data:/data")
    assert f"--bind={mounts}" in command
    assert stand_ins.check_flags(command) == ["vlc.sif", "vlc-jax", "--coordinator=auto", *FLAGS]
    image = "nvcr.io#me/vlc_jax"
    _, words, command = dry(job, *FLAGS, VLC_CONTAINER=image, VLC_MOUNTS="/data:/data")
    assert command[0] == "vlc-jax"
    asked = {f"--container-image={image}", f"--container-mounts={mounts}"}
    assert {*asked, f"--container-workdir={tmp_path}"} <= {*words}


def test_its_own_options_are_of_sbatch_and_shells():
    text = (helpers.ROOT / "launch/slurm.sbatch").read_text()
    options = re.findall(r"^#SBATCH (\S+)$", text, re.M)
    assert stand_ins.check_flags(["sbatch", *options, "FILE"]) == ["FILE"]
    # nothing but comments may precede the last one
    assert text.rindex("\n#SBATCH") < re.search(r"^[^#\n]", text, re.M).start()
    lines = re.findall(r"^# ((?:module|source) .*)$", text, re.M)
    assert text.rindex(lines[-1]) < text.index("set -uo pipefail")
    helpers.program("bash", "-n", "-c", "\n".join(lines), code=0)


@pytest.mark.parametrize(
    ("flags", "variables", "says"),
    [
        (FLAGS, {"PATH": "/usr/bin:/bin"}, "there is no vlc-jax on PATH or in "),
        (("sweep",), {}, "a sweep is an array job"),
        (
            FLAGS,
            {"SLURM_NTASKS_PER_NODE": 3, "SLURM_GPUS_ON_NODE": 8},
            "--ntasks-per-node must be 1 or the 8 GPUs of a node, not 3",
        ),
    ],
)
def test_a_wrong_request_is_refused(job, flags, variables, says):
    done = job(*flags, **variables)
    assert done.returncode == 2
    assert says in done.stderr
    assert not job.is_requeued()
