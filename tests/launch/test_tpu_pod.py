"""launch/tpu_pod.sh and launch/install.sh, against stand-ins of gcloud, uv and the workers."""

import shlex
import shutil
import subprocess

import pytest

from tests.support import helpers, runs, stand_ins

# Records its arguments. scp copies to the home of every worker, ssh runs the command there.
GCLOUD = """
printf '%s\\0' "$@" >>"$RECORDS/gcloud"
printf '\\n' >>"$RECORDS/gcloud"
[[ $1 == alpha ]] && shift
[[ "$1 $2 $3" == "compute tpus tpu-vm" ]] || exit 2
files=()
for word in "${@:5}"; do
  case $word in
    --worker=all) workers='0 1' ;;
    --worker=*) workers=${word#*=} ;;
    --command=*) command=${word#*=} ;;
    --* | *:) ;;
    *) files+=("$word") ;;
  esac
done
for worker in $workers; do
  home=$RECORDS/worker_$worker
  if [[ $4 == scp ]]; then
    cp "${files[@]}" "$home"
  else
    (cd "$home" && HOME=$home USER=me WORKER=$worker bash -c "$command") || exit
  fi
done
"""
# In place of tee and of systemctl, as root: the unit is a file of the home. restart starts its
# command, disable sends SIGTERM to the main process alone (KillMode=mixed).
SUDO = """
case "$*" in
  "tee /etc/systemd/system/vlc-jax.service") exec cat >"$HOME/unit" ;;
  *) exec "$@" ;;
esac
"""
SYSTEMCTL = """
setting() { sed -n "s/^$1=//p" "$HOME/unit"; }
case "$*" in
  "is-active --quiet vlc-jax") kill -0 "$(cat "$HOME/pid" 2>&1)" 2>/dev/null ;;
  "daemon-reload" | "enable vlc-jax") ;;
  "restart vlc-jax")
    log=$(setting StandardOutput)
    (cd / && exec setsid $(setting ExecStart)) >>"${log#append:}" 2>&1 </dev/null &
    echo $! >"$HOME/pid" ;;
  "disable --now vlc-jax")
    [[ $(setting KillMode) == mixed ]] && kill -s TERM "$(cat "$HOME/pid")" ;;
  *) exit 2 ;;
esac
"""
# In the place of .venv/bin/vlc-jax: records, then runs until it is told to save.
PROGRAM = """
printf '%s\\n' "$@" >"$RECORDS/program_$WORKER"
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
POD = ("my-pod", "us-east5-b")
FLAGS = ("--config", "scenes/clip", "--workdir", "/mnt/my runs/it's")


@pytest.fixture
def pod(tmp_path):
    """Runs the script; two workers are folders."""
    for name, body in {"gcloud": GCLOUD, "sudo": SUDO, "systemctl": SYSTEMCTL, "uv": UV}.items():
        stand_ins.write(tmp_path / "bin" / name, body)
    for i in range(2):
        (tmp_path / f"worker_{i}").mkdir()

    def run(*words, cwd=tmp_path, code=None):
        env = stand_ins.environment(tmp_path / "bin", RECORDS=tmp_path)
        script = helpers.ROOT / "launch/tpu_pod.sh"
        return helpers.program(script, *words, cwd=cwd, env=env, code=code)

    return run


def asked(tmp_path):
    """The arguments of every call of gcloud, whose flags exist."""
    path = tmp_path / "gcloud"
    calls = path.read_text().split("\0\n") if path.exists() else []
    words = [["gcloud", *call.split("\0")] for call in calls if call]
    for call in words:
        stand_ins.check_flags(call)
    return words


@pytest.fixture
def project(tmp_path):
    """A repository with requirements, and a file that is not committed."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "requirements.txt").write_text("vlc_jax[gcs]\n")
    git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b.c"]
    for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", "all"]):
        subprocess.run([*git, *words], check=True)
    (folder / "notes.txt").touch()
    return folder


def test_setup_installs_the_last_commit_on_every_worker(pod, tmp_path, project):
    pod("--project=me", "--internal-ip", *POD, "setup", cwd=project, code=0)
    for i in range(2):
        names = [path.name for path in (tmp_path / f"worker_{i}/project").iterdir()]
        assert sorted(names) == [".venv", "requirements.txt"]
        calls = (tmp_path / f"uv_{i}").read_text().splitlines()
        assert calls[0] == "venv --quiet --allow-existing --python 3.11 .venv"
        assert calls[1].endswith(" -r requirements.txt")
        assert calls[-1].endswith(" jax[tpu]==9.8.7")
    copy, install = asked(tmp_path)
    where = ["--zone=us-east5-b", "--project=me", "--internal-ip", "--worker=all"]
    assert copy[8:] == ["my-pod:", *where]
    assert install[4:10] == ["ssh", "my-pod", *where]


def test_a_run_is_a_service_on_every_worker_until_it_is_stopped(pod, tmp_path):
    for i in range(2):
        home = tmp_path / f"worker_{i}"
        stand_ins.write(home / "project/.venv/bin/vlc-jax", PROGRAM)
        shutil.copy(helpers.ROOT / "launch/supervise.sh", home)
    pod(*POD, "train", *FLAGS, code=0)
    words = [tmp_path / f"program_{i}" for i in range(2)]
    runs.wait_for(lambda: all(path.exists() and "it's" in path.read_text() for path in words))
    for path in words:
        assert path.read_text().splitlines() == ["--coordinator=auto", *FLAGS]
    unit = (tmp_path / "worker_1/unit").read_text().splitlines()
    # it starts again when the host does
    assert {"User=me", "[Install]", "WantedBy=multi-user.target"} <= {*unit}
    assert pod(*POD, "train", *FLAGS, code=1).stdout == "already running\n"
    pod("--tunnel-through-iap", *POD, "stop", code=0)
    logs = [tmp_path / f"worker_{i}/train.log" for i in range(2)]
    runs.wait_for(lambda: all("saved" in path.read_text() for path in logs))
    assert not any("restart" in path.read_text() for path in logs)
    assert [call[1] for call in asked(tmp_path)] == ["compute", "compute", "alpha"]


def test_a_dry_run_prints_commands_and_runs_none(pod, tmp_path, project):
    for words in (("setup",), ("train", *FLAGS), ("log",), ("stop",)):
        done = pod("--dry-run", *POD, *words, cwd=project, code=0)
        last = shlex.split(done.stdout)
        last = last[len(last) - last[::-1].index("gcloud") - 1 :]
        assert last[:6] == ["gcloud", "compute", "tpus", "tpu-vm", "ssh", "my-pod"]
        assert ("--worker=0" if words == ("log",) else "--worker=all") in last
    assert asked(tmp_path) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("my-pod", "train"), "NAME, ZONE and a command are needed, not 'my-pod train'"),
        ((*POD, "start"), "unknown 'start'; known: setup, train, log, stop"),
        (("--force", *POD, "log"), "unknown option --force"),
        ((*POD, "setup"), "setup copies the last commit of a project, and /"),
        ((*POD, "train", *FLAGS[:2]), "--workdir DIR is missing"),
        ((*POD, "train", *FLAGS[2:]), "--config FILE is missing"),
    ],
)
def test_a_wrong_request_is_refused(pod, tmp_path, words, says):
    done = pod(*words)
    assert done.returncode == 2
    assert done.stderr.startswith(f"tpu_pod.sh: {says}")
    assert asked(tmp_path) == []


@pytest.mark.parametrize(
    ("word", "says"),
    [("gpu", "must be cuda12, cuda13, tpu or cpu, not 'gpu'"), ("tpu", "there is no requirements")],
)
def test_an_installation_that_cannot_be_is_refused(tmp_path, word, says):
    assert (
        says
        in helpers.program(helpers.ROOT / "launch/install.sh", word, cwd=tmp_path, code=2).stderr
    )
