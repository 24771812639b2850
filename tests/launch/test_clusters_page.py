"""docs/clusters.md: the commands that need a cluster are those that the launchers take."""

import itertools
import re
import shlex

import yaml

from tests.support import helpers, stand_ins
from vlc_jax import main
from vlc_jax.errors import ExitCode
from vlc_jax.tools import launch, sweep

PAGE = (helpers.ROOT / "docs/clusters.md").read_text()
LINES = re.findall(r"^    (\S.*)$", PAGE, re.M)


def starting(*words):
    """The indented commands that start with these words, one list of words each."""
    split = [shlex.split(line) for line in LINES]
    found = [line for line in split if line[: len(words)] == [*words]]
    assert found, f"no command starts with {words}"
    return found


def check_flags(words):
    """Those of vlc_jax.main."""
    known = {f"--{holder.name}" for holder in main.FLAGS}
    names = {word.partition("=")[0] for word in words if word.startswith("--")}
    assert {"--config", "--workdir"} <= names
    assert all(name in known or name.startswith("--config.") for name in names)


def test_every_file_that_a_command_names_is_there():
    named = {word for line in LINES for word in re.findall(r"\b(?:launch|configs)/[\w./]+", line)}
    assert all((helpers.ROOT / name).exists() for name in named)
    named = {*re.findall(r"\$\(vlc-jax launch (\S+)\)", PAGE)}
    assert len(named) > 4
    assert all(launch.path(name).exists() for name in named)


def test_commands_for_slurm_start_the_program_and_a_sweep(tmp_path, capsys):
    stand_ins.write(tmp_path / "vlc-jax", "")
    for words in starting("sbatch"):
        script, *flags = stand_ins.check_flags(words)
        settings = stand_ins.environment(tmp_path, VLC_DRY_RUN=1)
        path = launch.path(re.fullmatch(r"\$\(vlc-jax launch (\S+)\)", script)[1])
        done = helpers.program("bash", path, *flags, env=settings, code=0)
        assert shlex.split(done.stdout)[-5:] == ["--coordinator=auto", *flags]
        check_flags(flags)
    for words in starting("vlc-jax", "sweep"):
        assert sweep.main([*words[2:], "--dry-run"]) == 0
        stand_ins.check_flags(shlex.split(capsys.readouterr().out))


def test_commands_for_a_tpu_pod_are_taken():
    verbs = []
    script = "$(vlc-jax launch tpu_pod.sh)"
    for words in starting("bash", script):
        done = helpers.program("bash", launch.path("tpu_pod.sh"), "--dry-run", *words[2:], code=0)
        stand_ins.check_flags(shlex.split(done.stdout.splitlines()[-1]))
        verbs.append(words[5])
        if words[5] == "train":
            check_flags(words[6:])
    assert verbs == ["setup", "train", "log"]


def test_commands_of_clouds_have_flags_that_exist():
    for words in (*starting("gcloud"), *starting("xpk")):
        stand_ins.check_flags(words)
        for word in words:
            name, _, value = word.partition("=")
            if name == "--command" and value.startswith("vlc-jax"):
                check_flags(shlex.split(value))


def test_commands_for_supervise_and_ray_have_flags_that_exist():
    for words in starting("bash", "$(vlc-jax launch supervise.sh)"):
        assert words[2] == "vlc-jax"
        check_flags(words)
    usage = (helpers.ROOT / "launch/ray_jaxtrainer.py").read_text()
    for words in starting("python", "-m", "vlc_jax.launch.ray_jaxtrainer"):
        end = words.index("--")
        assert all(f'"{word}"' in usage for word in words[3:end] if word.startswith("--"))
        check_flags(words[end + 1 :])


def test_workers_of_beam_have_the_versions_of_their_image():
    image = (helpers.ROOT / "launch/beam.Containerfile").read_text()
    ((python, version),) = re.findall(r"^FROM apache/beam_python([\d.]+)_sdk:(\S+)", image, re.M)
    requirements = (helpers.ROOT / "requirements-beam.txt").read_text().splitlines()
    assert f"apache-beam=={version}" in requirements
    assert f"FROM python:{python}-slim" in (helpers.ROOT / "launch/Containerfile").read_text()


def test_commands_for_containers_set_what_the_files_read():
    built = set()
    for words in starting("docker", "build"):
        container = (helpers.ROOT / words[words.index("-f") + 1]).read_text()
        built.add(words[words.index("-t") + 1])
        if "--build-arg" not in words:
            assert {*re.findall(r"^FROM (\S+)$", container, re.M)} <= built
            continue
        name, _, value = words[words.index("--build-arg") + 1].partition("=")
        assert f"ARG {name}=" in container
        assert value in ("cuda12", "cuda13", "tpu", "cpu")
    for words in starting("docker", "run"):
        check_flags(words[words.index("vlc_jax") :])
    envs = yaml.safe_load(launch.path("skypilot.yaml").read_text())["envs"]
    for words in starting("sky", "jobs", "launch"):
        pairs = [after for word, after in itertools.pairwise(words) if word == "--env"]
        assert {pair.partition("=")[0] for pair in pairs} == {*envs}


def test_the_table_has_the_exit_codes_of_the_program():
    rows = re.findall(r"^\| ([\d, ]+) \|", PAGE, re.M)
    listed = {int(code) for row in rows for code in row.split(",")}
    assert listed == {*ExitCode} | {130, 143}
