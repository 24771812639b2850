"""launch/tpu_pod.sh and launch/install.sh, against stand-ins of gcloud, uv and the workers."""

import shlex
import subprocess
import tarfile

import pytest

from tests.support import helpers, stand_ins

# Records its arguments. scp copies to the folder of every worker, ssh runs the command in them.
GCLOUD = """
printf '%s\\0' "$@" >>"$RECORDS/gcloud"
printf '\\n' >>"$RECORDS/gcloud"
[[ "$1 $2 $3" == "compute tpus tpu-vm" ]] || exit 2
for word; do
  case $word in
    --worker=all) workers='0 1' ;;
    --worker=*) workers=${word#*=} ;;
    --command=*) command=${word#*=} ;;
  esac
done
for worker in $workers; do
  if [[ $4 == scp ]]; then
    cp "$5" "$RECORDS/worker_$worker"
  else
    (cd "$RECORDS/worker_$worker" && WORKER=$worker bash -c "$command") || exit
  fi
done
"""
# In the place of .venv/bin/python: records, then runs until it is told to save.
PYTHON = """
printf '%s\\n' "$@" >"$RECORDS/python_$WORKER"
trap 'echo saved; exit 75' TERM
while :; do sleep 0.1; done
"""
# Records its arguments; the environment that it makes has jax 9.8.7.
UV = """
echo "$@" >>"$RECORDS/uv_$WORKER"
[[ $1 == venv ]] || exit 0
mkdir -p .venv/bin
printf '#!/bin/sh\necho 9.8.7\n' >.venv/bin/python
chmod +x .venv/bin/python
"""
POD = ("my-pod", "us-central2-b")
FLAGS = ("--config", "configs/scenes/clip.py", "--workdir", "/mnt/my runs/it's")


@pytest.fixture
def pod(tmp_path):
    """Runs the script; two workers are folders."""
    stand_ins.write(tmp_path / "bin/gcloud", GCLOUD)
    for i in range(2):
        (tmp_path / f"worker_{i}").mkdir()

    def run(*words, script=helpers.ROOT / "launch/tpu_pod.sh"):
        env = stand_ins.environment(tmp_path / "bin", RECORDS=tmp_path)
        return helpers.program(script, *words, env=env)

    return run


def asked(tmp_path):
    """The arguments of every call of gcloud."""
    path = tmp_path / "gcloud"
    calls = path.read_text().split("\0\n") if path.exists() else []
    return [call.split("\0") for call in calls if call]


@pytest.fixture
def checkout(tmp_path):
    """A repository with the scripts, and a file that is not committed."""
    folder = tmp_path / "checkout"
    for name in ("tpu_pod.sh", "install.sh"):
        text = (helpers.ROOT / "launch" / name).read_text()
        stand_ins.write(folder / "launch" / name, text)
    git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "--quiet"], ["add", "launch"], ["commit", "--quiet", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    (folder / "launch/notes.txt").touch()
    return folder


def test_setup_installs_the_last_commit_on_every_worker(pod, tmp_path, checkout):
    stand_ins.write(tmp_path / "bin/uv", UV)
    done = pod(*POD, "setup", script=checkout / "launch/tpu_pod.sh")
    assert done.returncode == 0, done.stderr
    for i in range(2):
        with tarfile.open(tmp_path / f"worker_{i}/vlc_jax.tar.gz") as archive:
            names = sorted(archive.getnames())
        assert names == ["launch", "launch/install.sh", "launch/tpu_pod.sh"]
        calls = (tmp_path / f"uv_{i}").read_text().splitlines()
        assert calls[0] == "venv --quiet --allow-existing --python 3.11 .venv"
        assert calls[1].endswith(" -r requirements.lock")
        assert calls[-1].endswith(" jax[tpu]==9.8.7")
    copy, install = asked(tmp_path)
    assert copy[3] == "scp"
    assert copy[5:] == ["my-pod:", "--zone=us-central2-b", "--worker=all"]
    assert install[3:7] == ["ssh", "my-pod", "--zone=us-central2-b", "--worker=all"]


def write_checkout(tmp_path):
    """What setup leaves on the workers."""
    for i in range(2):
        folder = tmp_path / f"worker_{i}/vlc_jax"
        stand_ins.write(folder / ".venv/bin/python", PYTHON)
        script = (helpers.ROOT / "launch/supervise.sh").read_text()
        stand_ins.write(folder / "launch/supervise.sh", script)


def test_a_run_is_started_on_every_worker_and_stopped(pod, tmp_path):
    write_checkout(tmp_path)
    started = pod(*POD, "train", *FLAGS)
    assert started.returncode == 0, started.stderr
    words = [tmp_path / f"python_{i}" for i in range(2)]
    stand_ins.wait_for(lambda: all(path.exists() and "it's" in path.read_text() for path in words))
    for path in words:
        assert path.read_text().splitlines() == ["-m", "vlc_jax.main", "--coordinator=auto", *FLAGS]
    again = pod(*POD, "train", *FLAGS)
    assert again.returncode == 1
    assert again.stdout == "already running\n"
    assert pod(*POD, "stop").returncode == 0
    logs = [tmp_path / f"worker_{i}/vlc_jax/train.log" for i in range(2)]
    stand_ins.wait_for(lambda: all("saved" in path.read_text() for path in logs))
    assert not any("restart" in path.read_text() for path in logs)


def test_a_dry_run_prints_commands_and_runs_none(pod, tmp_path):
    for words in (("setup",), ("train", *FLAGS), ("log",), ("stop",)):
        done = pod("--dry-run", *POD, *words)
        assert done.returncode == 0, done.stderr
        lines = [shlex.split(line) for line in done.stdout.splitlines()]
        assert lines[-1][:6] == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "my-pod"]
        everywhere = "--worker=0" if words == ("log",) else "--worker=all"
        assert everywhere in lines[-1]
    assert asked(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("my-pod", "train"), "NAME, ZONE and a command are needed, not 'my-pod train'"),
        ((*POD, "start"), "unknown 'start'; known: setup, train, log, stop"),
        ((*POD, "train", *FLAGS[:2]), "--workdir DIR is missing"),
        ((*POD, "train", *FLAGS[2:]), "--config FILE is missing"),
    ],
)
def test_a_wrong_request_is_refused(pod, tmp_path, words, says):
    done = pod(*words)
    assert done.returncode == 2
    assert done.stderr.splitlines()[0] == f"launch/tpu_pod.sh: {says}"
    assert asked(tmp_path) == []


def test_an_unknown_accelerator_is_refused():
    done = helpers.program("launch/install.sh", "gpu", code=2)
    assert "must be cuda12, cuda13, tpu or cpu, not 'gpu'" in done.stderr
