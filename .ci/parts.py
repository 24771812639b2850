"""Runs the parts of parts.toml side by side and prints what each has taken, beside its budget.

A part whose programs or CPU seconds exceed .ci/parts.toml by a fifth fails. The number of programs
is the same on every machine; CPU seconds are divided by how much slower this machine is, while the
part runs, than the one that the budget is of.
"""

import argparse
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

FOLDER = Path(__file__).parent
MARGIN = 1.2
# A file of Python to compile, which branches and allocates as tracing and XLA's compiler do. (By a
# loop over integers, which needs no memory, the same tests took 1,237 seconds on one machine and
# 2,433 on another.) PROBE_SECONDS: on the machine of the budget, with caches that others filled.
PROBE = Path(argparse.__file__).read_text()
PROBE_SECONDS = 0.012
SAMPLE_EVERY = 10  # seconds
DISK_BYTES = 9 * 10**9  # four environments take 6.3 GB, tests that copy want one that stays free
COUNTED = "VLC_COUNT_PROGRAMS"  # of tests/support/compilations.py
# Set by a signal. An exception in its handler could come while a process starts, which nobody would
# know then.
stopped = threading.Event()


@dataclass
class Part:
    name: str
    command: str
    after: tuple[str, ...] = ()  # parts that must have ended well
    process: subprocess.Popen | None = None
    begun: float = 0.0
    minutes: float = 0.0
    cpu: float = 0.0  # seconds, with those of its processes
    code: int | None = None
    slowness: list[float] = field(default_factory=list)

    @property
    def slower(self) -> float:
        """Speed of the machine of the budget over that of this one while the part ran."""
        return sum(self.slowness) / len(self.slowness) if self.slowness else 1.0

    def log(self, folder: Path) -> Path:
        return folder / f"{self.name}.log"

    def programs(self, folder: Path) -> int:
        path = folder / f"{self.name}.programs"
        return path.read_text().count("asked\t") if path.exists() else 0


def run(parts: list[Part], lanes: int, folder: Path) -> None:
    """Runs every part, at most `lanes` at a time, in their order; one whose needs failed is left
    out (its code stays None). An exception, such as KeyboardInterrupt once `stopped` is set, ends
    those that run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    running: list[Part] = []
    try:
        _run(parts, lanes, folder, running)
    finally:
        for part in running:
            os.killpg(part.process.pid, signal.SIGTERM)
            part.process.wait()


def _run(parts: list[Part], lanes: int, folder: Path, running: list[Part]) -> None:
    done: dict[str, Part] = {}
    waiting = list(parts)
    last_sample = 0.0
    while waiting or running:
        if stopped.is_set():
            raise KeyboardInterrupt
        for part in list(waiting):
            if any(name in done and done[name].code != 0 for name in part.after):
                waiting.remove(part)
                done[part.name] = part
            elif len(running) < lanes and all(name in done for name in part.after):
                waiting.remove(part)
                _start(part, folder)
                running.append(part)
        for part in list(running):
            pid, status, usage = os.wait4(part.process.pid, os.WNOHANG)
            if pid:
                running.remove(part)
                done[part.name] = part
                _finish(part, status, usage, folder)
        if time.monotonic() - last_sample > SAMPLE_EVERY and running:
            last_sample = time.monotonic()
            begun = time.thread_time()
            compile(PROBE, "", "exec")
            slower = (time.thread_time() - begun) / PROBE_SECONDS
            for part in running:
                part.slowness.append(slower)
        time.sleep(0.2)


def _start(part: Part, folder: Path) -> None:
    counts = folder / f"{part.name}.programs"
    counts.unlink(missing_ok=True)
    environment = {**os.environ, COUNTED: str(counts)}
    part.begun = time.monotonic()
    with part.log(folder).open("wb") as log:
        part.process = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", part.command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,  # all its processes are one group, to be ended as one
        )
    print(f"begun: {part.name}", flush=True)


def _finish(part: Part, status: int, usage: resource.struct_rusage, folder: Path) -> None:
    part.code = part.process.returncode = os.waitstatus_to_exitcode(status)
    part.minutes = (time.monotonic() - part.begun) / 60
    part.cpu = (usage.ru_utime + usage.ru_stime) / part.slower
    print(f"===== {part.name}: exit code {part.code}, {part.minutes:.1f} minutes", flush=True)
    print(part.log(folder).read_text(errors="replace"), flush=True)


def excess(part: Part, budget: dict[str, float], folder: Path) -> list[str]:
    """A line for each quantity of the part that exceeds its budget by more than a fifth."""
    spent = {"programs": part.programs(folder), "cpu_seconds": part.cpu}
    return [
        f"{part.name}: {value:.0f} {what.replace('_', ' ')}, a fifth above its budget of "
        f"{budget.get(what, 0):.0f}; make it cheaper, or raise .ci/parts.toml and say why"
        for what, value in spent.items()
        if value > MARGIN * budget.get(what, 0) and value > 1
    ]


def table(parts: list[Part], budgets: dict[str, dict[str, float]], folder: Path) -> str:
    heads = ("minutes", "CPU s", "budget", "programs", "budget", "slower")
    lines = [f"{'part':16}" + "".join(f"{head:>10}" for head in heads)]
    for part in parts:
        budget = budgets.get(part.name, {})
        lines.append(
            f"{part.name:16}{part.minutes:10.1f}{part.cpu:10.0f}{budget.get('cpu_seconds', 0):10}"
            f"{part.programs(folder):10}{budget.get('programs', 0):10}{part.slower:10.2f}"
        )
    return "\n".join(lines)


def first_failure(log: str) -> str:
    """The first line that names a failed test or an error; else the last lines."""
    for pattern in (r"^(?:FAILED|ERROR) .*", r"^E  .*", r".*[Ee]rror.*"):
        if line := re.search(pattern, log, re.M):
            return line.group(0)[:300]
    return "\n".join(log.splitlines()[-3:])


def pythons() -> dict[str, str | None]:
    """Interpreters of the other Pythons that are promised; None: not on this machine."""
    interpreters: dict[str, str | None] = {}
    for version in ("3.12", "3.13"):
        there = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python{version}"))
        interpreters[version] = None
        for python in (f"python{version}", *map(str, there)):
            words = [python, "-c", "import venv, ensurepip"]
            try:
                if subprocess.run(words, capture_output=True, check=False).returncode == 0:
                    interpreters[version] = python
            except FileNotFoundError:
                continue
    return interpreters


def read(plan: dict[str, dict], interpreters: dict[str, str | None]) -> list[Part]:
    """The parts whose Python is on this machine; says which are left out."""
    parts = []
    for name, values in plan.items():
        python = interpreters[values["python"]] if "python" in values else "python3"
        if python is None:
            print(f"left out: {name}: Python {values['python']} is not on this machine")
            continue
        command = values["command"].replace("{python}", shlex.quote(python))
        # nobody waits for a part that is left out
        there = {part.name for part in parts}
        after = tuple(need for need in values.get("after", ()) if need in there)
        parts.append(Part(name, command, after))
    return parts


def failures(parts: list[Part], plan: dict[str, dict], folder: Path) -> list[str]:
    """A line for each part that failed, was left out, or took too much."""
    lines = []
    for part in parts:
        if part.code is None:
            lines.append(f"{part.name}: left out, as one of {', '.join(part.after)} failed")
        elif part.code:
            log = part.log(folder).read_text(errors="replace")
            lines.append(f"{part.name}: exit code {part.code}: {first_failure(log)}")
        else:
            lines += excess(part, plan[part.name], folder)
    return lines


def main() -> int:
    for number in (signal.SIGTERM, signal.SIGINT):  # a background job of a shell ignores SIGINT
        signal.signal(number, lambda *_: stopped.set())
    begun, folder = time.monotonic(), Path("runs/ci").absolute()
    plan = tomllib.loads((FOLDER / "parts.toml").read_text())
    lanes = plan.pop("lanes")
    parts = read(plan, pythons())
    if (free := shutil.disk_usage(".").free) < DISK_BYTES:
        print(f"warning: {free / 1e9:.1f} GB of disk are free, {DISK_BYTES / 1e9:.0f} are needed")
    try:
        run(parts, lanes, folder)
    except KeyboardInterrupt:
        print("stopped by a signal")
        return 130
    print(table(parts, plan, folder))
    print(f"in all {(time.monotonic() - begun) / 60:.1f} minutes")
    lines = failures(parts, plan, folder)
    print("\n".join(lines[:6]))  # the first failure is among the last ten lines
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
