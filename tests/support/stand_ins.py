"""Executables that stand in for programs of a cluster: found first on PATH."""

import os
from collections.abc import Sequence
from pathlib import Path

_SBATCH = {"account", "array", "cpus-per-task", "gpus-per-node", "job-name", "nodes", "open-mode",
           "ntasks-per-node", "partition", "requeue", "signal", "time"}  # fmt: skip
_TPU = {"project", "quiet", "zone"}
_SSH = {*_TPU, "internal-ip", "worker"}
# Flags of programs, of those in their manuals.
FLAGS = {
    "sbatch": _SBATCH,
    "srun": {"cpus-per-task", "kill-on-bad-exit", "wait",
             "container-image", "container-mounts", "container-workdir"},  # pyxis
    "apptainer exec": {"bind", "nv"},
    "gcloud compute tpus tpu-vm ssh": {*_SSH, "command"},
    "gcloud compute tpus tpu-vm scp": _SSH,
    "gcloud alpha compute tpus tpu-vm ssh": {*_SSH, "command", "tunnel-through-iap"},
    "gcloud alpha compute tpus tpu-vm scp": {*_SSH, "tunnel-through-iap"},
    "gcloud compute tpus queued-resources create": {*_TPU, "accelerator-type", "internal-ips",
                                                    "node-id", "runtime-version", "spot"},
    "gcloud compute tpus queued-resources delete": {*_TPU, "force"},
    "xpk workload create": {*_TPU, "cluster", "command", "docker-image", "max-restarts",
                            "restart-on-exit-codes", "tpu-type", "workload"},
}  # fmt: skip


def check_flags(words: Sequence[str]) -> list[str]:
    """Asserts that the program which a command names has its flags; returns what follows them where
    that is another command."""
    (program,) = [name for name in FLAGS if " ".join(words).startswith(f"{name} ")]
    rest = [*words[len(program.split()) :]]
    is_of_another = program in ("sbatch", "srun", "apptainer exec")
    while rest and (rest[0].startswith("--") or not is_of_another):
        word = rest.pop(0)
        if word.startswith("--"):
            assert word[2:].partition("=")[0] in FLAGS[program], f"{program} has no {word}"
    return rest


def write(path: Path, body: str) -> None:
    """An executable bash script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/usr/bin/env bash\n{body}\n")
    path.chmod(0o755)


def environment(folder: Path, **more: object) -> dict[str, str]:
    """In which the executables of `folder` come first; more: further variables."""
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, **{name: str(value) for name, value in more.items()}}
