"""The script behind .ci/run: order, what is left out, budgets, the first failure."""

import importlib.util
import os
import shutil
import signal
import subprocess
import sys

import pytest

from tests.support import helpers, runs


@pytest.fixture(scope="module")
def parts():
    path = helpers.ROOT / ".ci" / "parts.py"
    spec = importlib.util.spec_from_file_location("ci_parts", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(parts, plan, folder, lanes=2):
    made = parts.read(plan, {"3.12": None})
    parts.run(made, lanes, folder)
    return {part.name: part for part in made}, parts.failures(made, plan, folder)


def test_parts_run_after_those_that_they_need(parts, tmp_path):
    plan = {
        "first": {"command": f"sleep 0.3; touch {tmp_path}/there"},
        "second": {"command": f"test -e {tmp_path}/there", "after": ["first"]},
        "breaks": {"command": "echo 'FAILED tests/a.py::test_b - 1 == 2'; exit 1"},
        "left": {"command": "true", "after": ["breaks"]},
        "also": {"command": "true", "after": ["left"]},
    }
    made, lines = run(parts, plan, tmp_path)
    assert [part.code for part in made.values()] == [0, 0, 1, None, None]
    assert lines == [
        "breaks: exit code 1: FAILED tests/a.py::test_b - 1 == 2",
        "left: left out, as one of breaks failed",
        "also: left out, as one of left failed",
    ]


def test_a_python_that_is_not_here_is_said_and_its_part_left_out(parts, tmp_path, capsys):
    plan = {
        "a": {"command": "false", "python": "3.12"},
        "b": {"command": "true", "after": ["a"]},  # as 3.13 after 3.12
    }
    made, lines = run(parts, plan, tmp_path)
    assert {name: part.code for name, part in made.items()} == {"b": 0}
    assert lines == []
    assert "left out: a: Python 3.12 is not on this machine" in capsys.readouterr().out


def test_parts_a_fifth_above_their_budget_fail(parts, tmp_path, monkeypatch):
    monkeypatch.setattr(parts, "SAMPLE_EVERY", float("inf"))  # this machine is never slower
    counted = 'printf "asked\\tx\\ncached\\tx\\n%.0s" {1..100} > $VLC_COUNT_PROGRAMS'
    busy = "python3 -c 'import time\nwhile time.process_time() < 2: pass'"
    plan = {
        "many": {"command": counted, "cpu_seconds": 10, "programs": 80},
        "within": {"command": counted, "cpu_seconds": 10, "programs": 84},
        "long": {"command": busy, "cpu_seconds": 0.1, "programs": 0},
    }
    made, lines = run(parts, plan, tmp_path)
    assert [part.code for part in made.values()] == [0, 0, 0]
    assert [line.split(",")[0].split(":")[0] for line in lines] == ["many", "long"]
    assert lines[0].startswith("many: 100 programs, a fifth above its budget of 80;")
    rows = parts.table([*made.values()], plan, tmp_path).splitlines()
    assert rows[1].split()[0] == "many"
    assert rows[1].split()[-3:-1] == ["100", "80"]


def test_make_takes_the_newest_python_that_works(tmp_path):
    for version, code in {"3.13": 1, "3.12": 0, "3.11": 0}.items():
        path = tmp_path / f"python{version}"
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o755)
    words = ["make", "--dry-run", "VENV=none", "none/.built"]
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    for name in ("PYTHON", "MAKEFLAGS", "MAKEOVERRIDES"):  # of the make that runs this test
        environment.pop(name, None)
    done = subprocess.run(
        words, cwd=helpers.ROOT, env=environment, capture_output=True, text=True, check=True
    )
    assert "python3.12 -m venv none" in done.stdout


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_signal_ends_the_parts_that_run(tmp_path):
    (tmp_path / ".ci").mkdir()
    script = shutil.copy(helpers.ROOT / ".ci" / "parts.py", tmp_path / ".ci")
    pid = tmp_path / "pid"
    plan = f'lanes = 1\n[a]\ncommand = "sleep 1000 & echo $! > {pid}; wait"\n'
    (tmp_path / ".ci" / "parts.toml").write_text(plan)
    with subprocess.Popen([sys.executable, script], cwd=tmp_path) as process:
        runs.wait_for(lambda: pid.exists() and pid.read_text())
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 130
    runs.wait_for(lambda: not is_running(int(pid.read_text())))
