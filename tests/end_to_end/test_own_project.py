"""A project outside of this one trains, resumes, evaluates and loads with code of its own."""

import json
import shutil

import pytest

from tests.support import helpers, own_project

LOADS = "import vlc_jax; print(vlc_jax.load('run').score(['photo_0.png'], ['a bird', 'no']).shape)"
NAMES = {  # way -> (entry points, argument of the config, name of the loss)
    "dotted": ("", "", "birdwatch.objectives.margin"),
    "plugin": ("birdwatch = birdwatch.plugin", ":", "margin"),
}


@pytest.mark.parametrize("way", NAMES)
def test_own_code_trains_resumes_evaluates_and_loads(way, tmp_path):
    entry_points, argument, loss = NAMES[way]
    project = own_project.write(tmp_path / "project", entry_points)
    run, objectives = project / "run", project / "birdwatch/objectives.py"
    command = ["-m", "vlc_jax", "--config", f"exp.py{argument}", "--workdir", "run"]
    losses = {"infonce": {"weight": 1.0}, loss: {"weight": 0.5, "gap": 0.1}}
    command.append(f"--config.losses={losses}")
    helpers.python(*command, cwd=project, code=0)
    assert helpers.rows(run / "metrics.jsonl")[-1]["train/margin"] > 0
    facts = json.loads((run / "env.json").read_text())["modules"]["birdwatch.objectives"]
    assert facts["file"] == str(objectives)
    assert facts["version"] == ("0.1" if entry_points else "not installed")

    objectives.write_text(objectives.read_text() + "# changed\n")
    shutil.rmtree(run / "checkpoints/2")
    done = helpers.python(*command, cwd=project, code=0)
    assert done.stderr.count("module_change") == 1
    assert f"birdwatch.objectives.sha256: {facts['sha256']} -> " in done.stderr

    helpers.write_photos(project, 1, ".png")
    trust = ""
    if way == "dotted":
        objectives.unlink()  # neither an evaluation nor a loaded model reads losses
        shutil.rmtree(run / "evals")
        evaluate = ["-m", "vlc_jax", "--mode", "eval", "--workdir", "run"]
        done = helpers.python(*evaluate, cwd=project, code=2)
        assert "the environment variable VLC_PLUGINS=birdwatch" in done.stderr
        helpers.python(*evaluate, "--config", "exp.py", cwd=project, code=0)
        trust = "import birdwatch.parts; "
    assert json.loads((run / "evals/birds/2.json").read_text())["metrics"]["accuracy"]["count"] == 3
    (project / "load.py").write_text(trust + LOADS)
    assert helpers.python("load.py", cwd=project, code=0).stdout == "(1, 2)\n"
