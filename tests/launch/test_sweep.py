"""launch/sweep.py: grids, tasks of an array, and two trials that really train."""

import json
import sys
from pathlib import Path

import pytest

from launch import sweep
from tests.support import helpers
from vlc_jax.errors import UsageError

FIELDS = (["optimizer.learning_rate", "1e-3", "1e-4"], ["seed", "0", "1", "2"])
GRID = ("--grid", "seed", "0", "1", "2")


def flags(out, *more):
    return ["--out", str(out), "--config", "configs/scenes/clip.py", *more]


def write_result(workdir: Path, step: int, value: float, metric="accuracy") -> None:
    """The result of a benchmark, as a run leaves it."""
    folder = workdir / "evals/pairs"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{step}.json").write_text(json.dumps({"metrics": {metric: {"value": value}}}))


@pytest.fixture
def runs(monkeypatch):
    """Replaces the runs: trial N ends with the code that the test sets, and has accuracy N / 10."""
    codes, done = {}, []

    def command(trial, args, more):
        done.append(trial)
        code = codes.get(trial.number, 0)
        if code == 0:
            write_result(sweep.folder_of(trial, args.out), 4, trial.number / 10)
        return [
            "bash",
            "-c",
            f"[[ {code} == 0 ]] && touch '{folder(trial, args)}/DONE'; exit {code}",
        ]

    def folder(trial, args):
        return sweep.folder_of(trial, args.out)

    monkeypatch.setattr(sweep, "command", command)
    command.codes, command.done = codes, done
    return command


def test_a_grid_has_every_combination_once():
    trials = sweep.grid(FIELDS, None)
    assert [trial.number for trial in trials] == [*range(6)]
    assert trials[1].values == {"optimizer.learning_rate": "1e-3", "seed": "1"}
    assert len({tuple(trial.values.items()) for trial in trials}) == 6


def test_a_task_takes_its_trial_alone():
    every = sweep.grid(FIELDS, None)
    for task in range(6):
        assert sweep.grid(FIELDS, task) == [every[task]]
    with pytest.raises(UsageError, match="--task 6 of a grid of 6 trials; use 0 to 5"):
        sweep.grid(FIELDS, 6)


def test_trials_that_are_done_are_not_run_again(tmp_path, runs, capsys):
    runs.codes[1] = 10
    assert sweep.main(flags(tmp_path, *GRID, "--metric", "pairs/accuracy")) == 1
    assert [trial.number for trial in runs.done] == [0, 1, 2]
    assert "trial_001 seed=1: FAILED with 10" in capsys.readouterr().out
    runs.codes.clear()
    assert sweep.main(flags(tmp_path, *GRID, "--metric", "pairs/accuracy")) == 0
    assert [trial.number for trial in runs.done] == [0, 1, 2, 1]
    assert "trial_002 seed=2: done, pairs/accuracy 0.2000" in capsys.readouterr().out


@pytest.mark.parametrize("code", [0, 2, 30, 75])
def test_a_task_ends_with_the_code_of_its_trial(tmp_path, runs, code):
    runs.codes[1] = code
    assert sweep.main(flags(tmp_path, *GRID, "--task", "1")) == code
    assert [trial.number for trial in runs.done] == [1]


def test_another_sweep_in_the_same_folder_is_refused(tmp_path, runs, capsys):
    assert sweep.main(flags(tmp_path, *GRID)) == 0
    assert sweep.main(flags(tmp_path, *GRID, "--config.steps=3")) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path} holds another sweep: flags [], not ['--config.steps=3']" in said
    assert [path.name for path in tmp_path.glob("sweep*")] == ["sweep.json"]


def test_a_command_is_restarted_here_or_by_the_queue(tmp_path, capsys):
    assert sweep.main(flags(tmp_path / "a", *GRID, "--config.steps=3", "--dry-run")) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    supervise = str(helpers.ROOT / "launch/supervise.sh")
    assert [line[0] for line in lines] == [supervise] * 3
    assert lines[2][1:4] == [sys.executable, "-m", "vlc_jax.main"]
    assert lines[2][-2:] == ["--config.steps=3", "--config.seed=2"]
    assert sweep.main(flags(tmp_path / "a", *GRID, "--task", "1", "--dry-run")) == 0
    assert capsys.readouterr().out.startswith(f"{sys.executable} -m vlc_jax.main ")
    assert not (tmp_path / "a").exists()


def test_a_metric_is_that_of_the_newest_evaluation(tmp_path):
    write_result(tmp_path, 9, 0.25)
    write_result(tmp_path, 10, 0.75)
    assert sweep.metric(tmp_path, "pairs/accuracy") == 0.75
    with pytest.raises(UsageError, match="unknown --metric 'pairs/acuracy'; did you mean 'pairs/"):
        sweep.metric(tmp_path, "pairs/acuracy")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "the following arguments are required: --grid"),
        (("--grid", "seed"), "--grid NAME VALUE [VALUE ...] needs a value"),
        ((*GRID, "--steps=3"), "further flags begin with --config., for the runs"),
        ((*GRID, "--task", "0", "--jobs", "2"), "--task runs one trial"),
    ],
)
def test_a_wrong_request_is_refused(tmp_path, capsys, words, says):
    with pytest.raises(SystemExit, match="2"):
        sweep.main(flags(tmp_path / "out", *words))
    assert says in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("content", ["[1]", '{"grid": '])
def test_damaged_settings_of_a_sweep_are_named(tmp_path, capsys, content):
    (tmp_path / "sweep.json").write_text(content)
    assert sweep.main(flags(tmp_path, *GRID)) == 2
    line = capsys.readouterr().err
    assert f"{tmp_path}/sweep.json, the settings of the sweep, is damaged" in line
    assert len(line.splitlines()) == 1


@pytest.mark.slow
def test_two_trials_of_a_grid_train(tmp_path):
    pairs = {"scenes_attribute_swap": {"split": "validation", "count": 8}}
    short = ("--config.optimizer.warmup_steps=1", "--config.input.preview=2")
    done = helpers.python(
        *("launch/sweep.py", "--out", tmp_path, "--config", f"{helpers.TINY}:steps=2", *short),
        *("--grid", "seed", "0", "1", "--metric", "scenes_attribute_swap/accuracy"),
        *(f"--config.evals={pairs}", "--config.eval.examples=1"),
    )
    assert done.returncode == 0, done.stderr
    seeds = [
        json.loads(path.read_text())["seed"] for path in sorted(tmp_path.glob("*/config.json"))
    ]
    assert seeds == [0, 1]
    assert len(list(tmp_path.glob("trial_*/DONE"))) == 2
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines] == ["trial_000 seed=0", "trial_001 seed=1"]
    assert all(": done, scenes_attribute_swap/accuracy 0." in line for line in lines)
