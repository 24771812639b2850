"""What a user types wrong ends in one line that says the rule, the value and the cure."""

import argparse
import ast
import errno
import importlib.util
import json
import os
import re
import shlex
import signal
import threading
from pathlib import Path

import pytest

from tests.support import helpers
from vlc_jax import errors, main
from vlc_jax.__main__ import COMMANDS
from vlc_jax.errors import ExitCode
from vlc_jax.input_pipeline.loader.workers import WorkerError
from vlc_jax.input_pipeline.sources.records import RecordsSource
from vlc_jax.run.processes.preemption import StopSignal


def records(path, folder, *arguments):
    extra = "".join(f",{argument}" for argument in arguments)
    return f"configs/records.py:path={path},image_folder={folder},batch=8,steps=2{extra}"


def assert_refused(done, code, *words):
    assert done.returncode == code, done.stderr
    for word in words:
        assert word in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("config", "flags", "words"),
    [
        (helpers.TINY, ["--config.stepz=3"], ["stepz", 'Did you mean "steps"']),
        (helpers.TINY, ["--config.steps=many"], ["--config.steps=many"]),
        (helpers.TINY, ["--confg=x"], ["confg", "Did you mean"]),
        ("configs/scenes/clip.py:stps=3", [], ["'stps'", "did you mean 'steps'"]),
        ("configs/records.py:path=no.jsonl", [], ["no.jsonl"]),
        ("configs/none.py", [], ["no config file configs/none.py; unknown config 'none'"]),
        (helpers.TINY, ["--config.batch_size=30"], ["30 is not divisible by 8", "24 or 32"]),
        (helpers.TINY, ["--config.model.vocab_size=10"], ["tokenizer has", "model embeds 10"]),
        (helpers.TINY, ["--config.input.source=scene"], ["'scene'", "did you mean 'scenes'"]),
        (helpers.TINY, ["--config.input.scenes.world=moon"], ["moon", "scenes-mini"]),
        (helpers.TINY, ["--config.input.source_options.cuont=3"], ["'cuont'", "mean 'count'"]),
        (helpers.TINY, ["--config.input.source_options.count=x"], ["is an integer; got 'x', str"]),
        (helpers.TINY, ["--config.input.records.path=x"], ["config.input.source_options.NAME="]),
        (helpers.TINY, ["--config.input.source_option.count=3"], ["source_option", "Did you mean"]),
        (helpers.TINY, ["--config.epochs=2.0", "--config.steps=2"], ["exactly one of"]),
        (helpers.TINY, ["--workdir=ftp://b/run"], ["--workdir ftp://b/run: addresses begin with"]),
        (helpers.TINY, ["--workdir="], ["--workdir DIR is missing"]),
        (helpers.TINY, ["--workdir=docs"], ["docs holds", "and no run"]),
        (helpers.TINY, ["--join_seconds=nan"], ["--join_seconds=nan: it must be a number"]),
        (helpers.TINY, ["--num_processes=1000000000"], ["in the range [1, 100000]"]),
        (helpers.TINY, ["--coordinator=here:1"], ["--coordinator=here:1", "processes must be"]),
        (helpers.TINY, ["--config.evals.scenes_retrieval.split=tset"], ["tset", "test"]),
    ],
)
def test_a_wrong_request_is_one_line_and_exit_2(tmp_path, config, flags, words):
    """One of each kind; tests/setup has the messages of single fields."""
    done = helpers.run(config, tmp_path / "run", *flags, devices=8)
    assert_refused(done, 2, *words)
    assert len(done.stderr.strip().splitlines()) <= 3, done.stderr


def test_help_and_list_print_and_end_with_exit_0():
    helps = ["--allow_config_change", "--workdir", "Exit codes"]
    for flag, words in (("--help", helps), ("--list", ["hp_hn: HP+HN"])):
        done = helpers.python("-m", "vlc_jax.main", flag, code=0)
        assert done.stderr == ""
        assert all(word in done.stdout for word in words)


def test_a_tool_has_a_help_of_its_own():
    done = helpers.python("-m", "vlc_jax.tools.cache_features", "--help")
    assert "vlc-jax cache_features" in done.stdout
    assert "--allow_config_change" not in done.stdout


class Parsed(BaseException):
    """Ends a command whose words are parsed; none of its handlers catches it."""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_example_of_a_help_is_parsed_by_its_command(name, monkeypatch):
    module = COMMANDS[name][0]
    source = Path(importlib.util.find_spec(module).origin).read_text()
    text = ast.get_docstring(ast.parse(source)).replace("\\\n", " ")
    words = shlex.split(re.search(rf"^ *vlc-jax {name} (.+)$", text, re.MULTILINE)[1])
    if name in ("cache_features", "embed_text"):  # absl's flags, which exist once in a process
        flags = [word[2:] for word in words if re.match("--(?!config)", word)]
        assert flags
        assert all(f'"{flag}"' in source for flag in flags)
        return
    parse = argparse.ArgumentParser.parse_known_args

    def parse_alone(parser, words, namespace=None):
        rest = parse(parser, words, namespace)[1]
        assert all(word.startswith("--config.") for word in rest)
        raise Parsed

    monkeypatch.setattr(argparse.ArgumentParser, "parse_known_args", parse_alone)
    module += ".__main__" if name == "report" else ""
    with pytest.raises(Parsed):
        importlib.import_module(module).main(words)


def test_a_truncated_jpeg_is_exit_3_and_named(tmp_path):
    names = helpers.write_photos(tmp_path / "photos")
    bad = tmp_path / "photos" / names[3]
    bad.write_bytes(bad.read_bytes()[:200])
    path = helpers.write_jsonl(tmp_path, names)
    done = helpers.run(records(path, tmp_path / "photos", "holdout=0"), tmp_path / "run")
    assert_refused(done, 3, names[3])
    assert json.loads((tmp_path / "run" / "FAILED").read_text())["exit_code"] == 3


def test_a_truncated_validation_jpeg_is_exit_3_before_training(tmp_path):
    names = helpers.write_photos(tmp_path / "photos")
    path = helpers.write_jsonl(tmp_path, names)
    options = {"path": path, "image_folder": tmp_path / "photos", "holdout": 0.3}
    bad = Path(RecordsSource("validation", **options)[0].image)
    bad.write_bytes(bad.read_bytes()[:200])
    done = helpers.run(records(path, tmp_path / "photos", "holdout=0.3"), tmp_path / "run")
    assert_refused(done, 3, "benchmark retrieval", bad.name)
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_divergence_is_exit_10_and_names_the_batch(tmp_path):
    workdir = tmp_path / "run"
    flags = ("--config.optimizer.learning_rate=1e38", "--config.checkpoint.every=1")
    done = helpers.run(helpers.TINY, workdir, *flags)
    assert_refused(done, 10, "is not finite", "scenes-mini", "Last good checkpoint: step")
    step = json.loads((workdir / "FAILED").read_text())
    assert step["exit_code"] == 10
    event = next(r for r in helpers.rows(workdir / "events.jsonl") if r["event"] == "nonfinite")
    assert len(event["ids"]) == 16
    saved = [int(path.name) for path in (workdir / "checkpoints").glob("[0-9]*")]
    assert max(saved) == event["step"] - 1
    assert helpers.run(helpers.TINY, workdir, *flags).returncode == 10


@pytest.fixture
def signals(monkeypatch):
    """Of a run that is done at once; their handlers are again what they were, after a test."""
    monkeypatch.setattr(main, "run", lambda stop: ExitCode.DONE)
    monkeypatch.setattr(main, "listen", main.StopSignal)
    monkeypatch.setattr(main.logging, "shutdown", lambda: None)
    before = {number: signal.getsignal(number) for number in StopSignal.ALL}
    yield before.keys()
    for number, handler in before.items():
        signal.signal(number, handler)


def test_a_signal_after_the_end_stops_nothing(signals):
    main.main(["main"])
    # the interpreter gives every other handler back to the system while it ends
    assert {signal.getsignal(number) for number in signals} == {signal.SIG_IGN}


@pytest.mark.parametrize("is_left", [True, False])
def test_a_hanging_loader_does_not_hold_back_the_end(monkeypatch, signals, is_left):
    ended, ends = [], threading.Event()
    monkeypatch.setattr(os, "_exit", ended.append)
    name = "loader_0" if is_left else "another"
    thread = threading.Thread(target=ends.wait, name=name)
    thread.start()
    main.main(["main"])
    ends.set()
    thread.join()
    assert ended == ([0] if is_left else [])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_or_broken_disk_is_for_the_supervisor(number):
    assert errors.exit_code(OSError(number, "no space")) == ExitCode.INFRASTRUCTURE
    assert errors.exit_code(OSError(errno.ENOENT, "a bug of ours")) is None
    assert errors.exit_code(IsADirectoryError(errno.EISDIR, "of a bug")) is None
    assert errors.exit_code(OSError(errno.EISDIR, "no file", "evals/a/10.json")) == ExitCode.USAGE
    assert errors.exit_code(WorkerError("loader worker 1 of 2")) == ExitCode.INFRASTRUCTURE
    assert errors.exit_code(MemoryError()) == ExitCode.OUT_OF_MEMORY
