"""vlc-jax sweep: grids, folders, resume, array jobs, the comparison; two trials that train."""

import json
import os
import re
import shlex
import sys

import numpy as np
import pytest
import scipy.stats

from tests.support import helpers, stand_ins
from vlc_jax import errors
from vlc_jax.tools import launch, sweep

RATES = ("--grid", "learning_rate=1e-3,1e-4")


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Runs a sweep of TINY. A trial ends with the code of `codes`, 0 leaves a result; `begun`: the
    names of those that ran."""
    codes, begun = {}, []

    def command(trial):
        begun.append(trial.folder.name)
        code = codes.get(trial.folder.name, 0)
        value = {"value": 0.5 + 0.05 * len(begun), "low": 0.4, "high": 0.8, "chance": 0.5}
        result = json.dumps({"metrics": {"accuracy": value}, "summary": ["accuracy"]})
        config = json.dumps({"seed": json.loads(trial.fields["seed"]), **trial.values})
        lines = f"cd {trial.folder}; echo the last line; [[ {code} == 0 ]] || exit {code}; "
        lines += f"echo {shlex.quote(config)} >config.json; mkdir -p evals/pairs; "
        return ["bash", "-c", f"{lines}echo {shlex.quote(result)} >evals/pairs/4.json; touch DONE"]

    def run(*words):
        return sweep.main(["--config", helpers.TINY, "--workdir", str(tmp_path / "out"), *words])

    monkeypatch.setattr(sweep, "command", command)
    monkeypatch.setenv("VLC_RESTARTS", "0")
    run.codes, run.begun, run.out = codes, begun, tmp_path / "out"
    return run


def words_of(*texts, config=helpers.TINY, seeds=1):
    made = sweep.trials(config, sweep.grid(texts), seeds, helpers.ROOT, [])
    return [shlex.join(trial.words) for trial in made]


def test_a_grid_has_every_point_with_the_first_seed_first():
    lines = words_of("steps=2,4", "optimizer.b1=0.5,0.9", seeds=2)
    assert len({*lines}) == 8
    assert [line[-1] for line in lines] == [*"00001111"]
    # an argument of the config comes before the field of its name
    assert f"--config {helpers.TINY}:steps=2 --config.optimizer.b1=0.5 --config.seed=0" == lines[0]


def test_names_are_arguments_fields_or_their_ends():
    config = f"{helpers.TINY}:steps=9,pretrain"
    (line,) = words_of("steps=3", "learning_rate=1e-4", "config.log_every=2", config=config)
    assert line.startswith(f"--config {helpers.TINY}:pretrain,steps=3 --config.optimizer.learning")
    assert "--config.log_every=2" in line
    (line, _) = words_of("decay_exclude=['a,b', 'c']")
    assert shlex.split(line)[2] == "--config.optimizer.decay_exclude=a,b"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("lerning_rate=1", "unknown config argument 'lerning_rate'.*mean 'learning_rate'"),
        ("every=1,2", "--grid every: name one of the fields checkpoint.every, eval.every"),
        ("optimizer.b3=1", "unknown config field 'b3'"),
        ("weight_decay=1,-1", "weight_decay=-1,seed=0: config.optimizer.weight_decay must be at l"),
        ("learning_rate=1e-4,.0001", "has the config of learning_rate=0.0001,seed=0: leave"),
        ("seed=0,1", "--seeds N"),
        ("steps=", "--grid wants NAME=VALUE,VALUE"),
    ],
)
def test_a_wrong_grid_is_refused_before_any_trial(text, says):
    with pytest.raises(errors.UsageError, match=says):
        words_of(text)


def test_folders_have_names_that_file_systems_take():
    assert sweep.folder_name({"rate": "1e-5", "seed": "0"}) == "rate=1e-05,seed=0"
    assert sweep.folder_name({"rate": "0.00001"}) == sweep.folder_name({"rate": "1e-5"})
    strange = [
        sweep.folder_name({"init_from": f"runs/{name}"}) for name in ("a b", "a_b", "é" * 300)
    ]
    assert len({*strange}) == 3
    assert all(len(name.encode()) <= 160 and "/" not in name for name in strange)


def test_a_trial_that_fails_stops_no_other_and_is_tried_again(start, capsys):
    start.codes["learning_rate=0.001,seed=0"] = 10
    assert start(*RATES) == 1
    printed = capsys.readouterr()
    assert "1/2 learning_rate=0.001,seed=0: FAILED with 10: the last line; 0 min" in printed.out
    assert "2/2 learning_rate=0.0001,seed=0: done" in printed.out
    assert printed.err == "failed: learning_rate=0.001,seed=0\n"
    start.codes.clear()
    assert start(*RATES, "--seeds", "2", "--jobs", "1") == 0  # with a further seed
    assert start.begun[2:] == [
        f"learning_rate={k}" for k in ("0.001,seed=0", "0.001,seed=1", "0.0001,seed=1")
    ]
    assert "4 trials, 1 done before" in capsys.readouterr().out


def test_the_comparison_has_means_and_intervals_over_seeds(start, capsys):
    assert start(*RATES, "--seeds", "3") == 0
    (start.out / "learning_rate=0.0001,seed=2/DONE").unlink()
    assert start(*RATES, "--seeds", "3", "--table") == 0
    assert len(start.begun) == 6
    values = [0.55, 0.65, 0.75]  # of every other trial
    low, high = scipy.stats.t.interval(0.95, 2, np.mean(values), scipy.stats.sem(values))
    page = (start.out / "comparison.md").read_text()
    assert "| model | pairs accuracy |" in page
    assert re.search(rf"rate=0.001 \(3 seeds\) \| 65.0.* ±{50 * (high - low):.1f} \|", page)
    assert "rate=0.0001 (2 seeds) |" in page
    assert "1 trials are not done" in page
    assert "±24.8" in capsys.readouterr().out
    assert "<table" in (start.out / "comparison.html").read_text()


def test_another_sweep_in_the_same_folder_is_refused(start, capsys):
    assert start(*RATES) == 0
    assert start(*RATES, "--config.optimizer.weight_decay=0.5") == 2
    assert "was begun with optimizer.weight_decay '0.1', not '0.5'" in capsys.readouterr().err
    assert start("--grid", "learning_rate=1e-3") == 2
    said = capsys.readouterr().err
    assert f"{start.out} holds learning_rate=0.0001,seed=0, which is no trial of this grid" in said
    file = start.out / "learning_rate=0.001,seed=0/trial.json"
    fields = json.loads(file.read_text())
    assert fields.pop("optimizer.eps") == "1e-06"  # as of a version without this field
    file.write_text(json.dumps(fields))
    assert start(*RATES) == 0
    file.write_text("[1]")
    assert start(*RATES) == 3
    assert "trial.json is damaged" in capsys.readouterr().err
    assert len(start.begun) == 2


def test_a_signal_stops_the_trial_and_the_sweep(start, monkeypatch, capsys):
    def command(trial):
        start.begun.append(trial)
        return ["bash", "-c", f"trap 'exit 75' TERM; kill -INT {os.getpid()}; sleep 9 & wait"]

    monkeypatch.setattr(sweep, "command", command)
    assert start(*RATES) == 75
    printed = capsys.readouterr()
    assert "learning_rate=0.001,seed=0: stopped" in printed.out
    assert printed.err == "stopped; the same command resumes\n"
    assert len(start.begun) == 1


def test_a_task_becomes_its_trial(start, monkeypatch, capsys):
    monkeypatch.setattr(os, "execvp", lambda program, words: start.begun.append(words) or 0)
    monkeypatch.setenv("SLURM_NTASKS", "2")
    start(*RATES, "--task", "1")
    assert start.begun[0] == "learning_rate=0.0001,seed=0"
    assert start.begun[1][-1] == "--coordinator=auto"
    (start.out / "learning_rate=0.001,seed=0/DONE").touch()
    assert start(*RATES, "--task", "0") == 0
    assert len(start.begun) == 2
    assert start(*RATES, "--task", "2") == 2
    assert "--task 2 of 2 trials; use 0 to 1" in capsys.readouterr().err


def test_an_array_job_has_the_trials_that_are_not_done(start, tmp_path, monkeypatch, capfd):
    words = (*RATES, "--seeds", "2", "--slurm=--gpus-per-node=1 --time=1:00:00", "--jobs", "2")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    stand_ins.write(tmp_path / "bin/sbatch", 'printf "%s\\n" sbatch "$@"')
    assert start(*RATES) == 0
    capfd.readouterr()
    assert start(*words) == 0
    asked = capfd.readouterr().out.splitlines()[1:]
    script, *program = stand_ins.check_flags(asked)
    assert asked[1:4] == ["--array=2,3%2", "--gpus-per-node=1", "--time=1:00:00"]
    assert script == str(launch.path("slurm.sbatch"))
    assert program == ["sweep", "--config", helpers.TINY, "--workdir", str(start.out), "--seeds",
                       "2", *RATES]  # fmt: skip
    monkeypatch.setenv("PATH", str(tmp_path))
    assert start(*words) == 2
    assert "there is no sbatch" in capfd.readouterr().err


def test_flags_and_folders_that_no_trial_can_have_are_refused(start, capsys):
    for word in ("--steps=3", "--config.seed=3", "--workdir=gs://runs/x"):
        assert start(*RATES, word) == 2
    first, second, third = capsys.readouterr().err.splitlines()
    assert "further flags are --config.FIELD=VALUE, but for seed; got --steps=3" in first
    assert second.endswith("got --config.seed=3")
    assert "--workdir gs://runs/x: name a local folder" in third


@pytest.mark.slow
def test_two_trials_train_in_the_folder_of_a_project(tmp_path):
    """Its config imports a module of its own, and a file has the name of a package."""
    (tmp_path / "my").mkdir()
    (tmp_path / "my/size.py").write_text("COUNT = 32\n")
    (tmp_path / "tokenizers.py").write_text("raise ImportError('not this one')\n")
    config = "import size\nfrom tests.support import tiny\n\ndef get_config(argument=None):\n"
    config += "    config = tiny.get_config(argument)\n    config.input.scenes.count = size.COUNT\n"
    (tmp_path / "my/exp.py").write_text(f"{config}    return config\n")
    pairs = {"scenes_attribute_swap": {"split": "validation", "count": 8}}
    done = helpers.program(
        *(sys.executable, "-P", "-m", "vlc_jax", "sweep", "--config", "my/exp.py:steps=2"),
        *("--workdir", "runs/sweep", *RATES, "--config.optimizer.warmup_steps=1"),
        *(f"--config.evals={pairs}", "--config.input.preview=2", "--config.eval.examples=1"),
        cwd=tmp_path,
        env={**helpers.environment(), "PYTHONPATH": str(helpers.ROOT)},
    )
    assert done.returncode == 0, done.stderr
    saved = sorted((tmp_path / "runs/sweep").glob("*/config.json"))
    configs = [json.loads(path.read_text()) for path in saved]
    assert [each["optimizer"]["learning_rate"] for each in configs] == [1e-4, 1e-3]
    assert configs[0]["input"]["scenes"]["count"] == 32
    assert "attribute swap accuracy" in (tmp_path / "runs/sweep/comparison.md").read_text()
