"""launch/slurm.sbatch, started by stand-ins of sbatch, srun and scontrol."""

import os
import signal
import socket
import subprocess
import sys

import pytest

from tests.support import helpers, stand_ins

FLAGS = ("--config", "configs/scenes/clip.py", "--workdir", "runs/a run")

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
# In the place of the interpreter: records its arguments and what JAX finds, or ends with $CODE.
PYTHON = f"""
printf '%s\\n' "$@" >"$RECORDS/python_$SLURM_PROCID"
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
    for name, body in {"srun": SRUN, "python": PYTHON}.items():
        stand_ins.write(tmp_path / "bin" / name, body)
    stand_ins.write(tmp_path / "bin/scontrol", 'echo "$@" >"$RECORDS/scontrol"')
    script = tmp_path / "slurm_script"
    script.write_text((helpers.ROOT / "launch/slurm.sbatch").read_text())

    def run(*flags, cwd=helpers.ROOT, start=subprocess.run, **variables):
        settings = {"RECORDS": tmp_path, "PYTHON": "python", "SLURM_NTASKS": 1, "CODE": ""}
        settings |= {"SLURM_JOB_ID": 7, "JAX_PLATFORMS": "cpu", **variables}
        environment = stand_ins.environment(tmp_path / "bin", **settings)
        return start(
            ["bash", script, *flags],
            cwd=cwd,
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
        asked = ["-m", "vlc_jax.main", "--coordinator=auto", *FLAGS]
        assert job.records(f"python_{i}") == asked
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
    done = job(
        "sweep", "--out", "runs/sweep", "--grid", "seed", "0", "1", CODE=0, SLURM_ARRAY_TASK_ID=1
    )
    assert done.returncode == 0, done.stderr
    words = ["launch/sweep.py", "--task=1", "--out", "runs/sweep", "--grid", "seed", "0", "1"]
    assert job.records("python_0") == words


def test_a_dry_run_prints_the_command(job):
    done = job(*FLAGS, VLC_DRY_RUN=1, SLURM_GPUS_ON_NODE=4)
    assert done.stdout.startswith("JAX_LOCAL_DEVICE_IDS=0,1,2,3 'srun' ")
    assert "'--coordinator=auto' '--config' 'configs/scenes/clip.py'" in done.stdout
    assert "'runs/a run'" in done.stdout
    per_gpu = job(*FLAGS, VLC_DRY_RUN=1, SLURM_GPUS_ON_NODE=4, SLURM_NTASKS_PER_NODE=4)
    assert per_gpu.stdout.startswith("'srun' ")  # JAX then takes the GPU of the task's index


@pytest.mark.parametrize(
    ("flags", "variables", "says"),
    [
        (FLAGS, {"PYTHON": "no_python"}, "there is no no_python"),
        (("sweep",), {}, "a sweep is an array job"),
        (
            FLAGS,
            {"SLURM_NTASKS_PER_NODE": 3, "SLURM_GPUS_ON_NODE": 8},
            "--ntasks-per-node must be 1 or the 8 GPUs of a node, not 3",
        ),
        (FLAGS, {"cwd": "/"}, "submit it in the checkout of vlc_jax, not in /"),
    ],
)
def test_a_wrong_request_is_refused(job, flags, variables, says):
    done = job(*flags, **variables)
    assert done.returncode == 2
    assert says in done.stderr
    assert not job.is_requeued()
