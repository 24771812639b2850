"""The project of docs/extending.md trains, resumes, evaluates and loads with code of its own."""

import json
import re
import shutil

import pytest

from tests.support import helpers, plugins

PLUGIN = """from parts import *
LOSSES, HEADS, SOURCES = {"margin": margin}, {"Halved": Halved}, {"Birds": Birds}
TOKENIZERS, PROTOCOLS = {"Letters": Letters}, {"STRICT": STRICT}
BENCHMARKS = {"DOGS": (dogs, "STRICT")}
"""
SMALL = {"width": 8, "depth": 1, "heads": 2, "projection": 8}


def command(prefix: str) -> list[str]:
    """Trains two steps with everything of the project."""
    loss = {"objectives.margin" if prefix else "margin": {"weight": 0.5, "gap": 0.1}}
    options = {
        "batch_size": 2,
        "epochs": 1,
        "optimizer.warmup_steps": 1,
        "checkpoint.every": 1,
        "input.source": f"{prefix}Birds",
        "input.source_options": {"path": "my_photos"},
        "text.tokenizer": f"{prefix}Letters",
        "text.tokenizer_options": {},
        "model.name": f"{prefix}Halved",
        "model.vocab_size": 256,
        "model.image": SMALL,
        "model.text": SMALL,
        "losses": {"infonce": {"weight": 1.0}, **loss},
        "evals": {f"{prefix}DOGS": {"count": 3}},
    }
    config = ["--config", "exp.py:path=my_photos/captions.jsonl"]
    return [*config, *(f"--config.{name}={value}" for name, value in options.items())]


@pytest.fixture
def project(tmp_path):
    page = (helpers.ROOT / "docs/extending.md").read_text()
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", page, re.S):
        (tmp_path / name).write_text(code)
    (tmp_path / "objectives.py").write_text("from parts import margin\n")
    photos = helpers.write_photos(tmp_path / "my_photos", 4)
    helpers.write_jsonl(tmp_path / "my_photos", photos)
    return tmp_path


@pytest.mark.parametrize("way", ["dotted", "plugin"])
def test_own_code_trains_resumes_evaluates_and_loads(way, project):
    run, parts, prefix = project / "run", project / "parts.py", "parts."
    if way == "plugin":
        prefix = ""
        (project / "plugin.py").write_text(PLUGIN)
        plugins.install(project, "plugin")
    words = ["-m", "vlc_jax", "--workdir", "run"]
    helpers.python(*words, *command(prefix), cwd=project, code=0)
    assert helpers.rows(run / "metrics.jsonl")[-1]["train/margin"] > 0
    assert json.loads((run / "evals/DOGS/2.json").read_text())["protocol"] == f"{prefix}STRICT"
    modules = json.loads((run / "env.json").read_text())["modules"]
    assert modules.keys() == {"parts", "plugin" if way == "plugin" else "objectives"}
    assert modules["parts"]["file"] == str(parts)

    parts.write_text(parts.read_text() + "# changed\n")
    shutil.rmtree(run / "checkpoints/2")
    done = helpers.python(*words, *command(prefix), cwd=project, code=0)
    (line,) = [line for line in done.stderr.splitlines() if "module_change" in line]
    assert line.endswith(f'module_change {{"files": ["{parts}"]}}')

    program = "import vlc_jax; print(vlc_jax.load('run').score(['my_photos/photo_0.jpg'], ['a']))"
    if way == "dotted":
        (project / "objectives.py").unlink()  # evaluation and loading read no losses
        shutil.rmtree(run / "evals")
        words += ["--mode", "eval"]
        done = helpers.python(*words, cwd=project, code=2)
        assert "the environment variable VLC_PLUGINS=parts" in done.stderr
        helpers.python(*words, *command(prefix), cwd=project, code=0)
        assert (run / "evals/DOGS/2.json").exists()
        program = f"import parts; {program}"
    (project / "load.py").write_text(program)
    assert helpers.python("load.py", cwd=project, code=0).stdout.startswith("[[")
