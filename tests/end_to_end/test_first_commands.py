"""A new environment: the package as `pip install .` builds it, and the first commands of a reader.

Its dependencies are those of this interpreter; no file of the checkout is on its path.
"""

import os
import re
import subprocess
import sys
import sysconfig

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support import helpers


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """run(program, *words) -> stdout of a program of a new environment, in an empty folder."""
    root = tmp_path_factory.mktemp("new")
    programs = root / "venv" / "bin"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / "venv"], check=True)
    paths = dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = root / "venv" / "lib" / version / "site-packages"
    # a path that a .pth file names is searched after the environment's own packages, and the
    # .pth files in it, such as that of the editable checkout, are not read
    (packages / "dependencies.pth").write_text("\n".join(paths))
    words = ("-m", "pip", "--python", programs / "python", "install", "--quiet", "--no-deps")
    words += ("--disable-pip-version-check", copied(root / "source"))
    helpers.program(sys.executable, *words, code=0)
    folder = root / "folder"
    folder.mkdir()

    def run(program, *words):
        # tests compile without optimisations; on one of the Pythons as a reader does, with them
        optimised = ("XLA_FLAGS",) if sys.version_info >= (3, 13) else ()
        tests_own = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", *optimised)
        variables = helpers.environment()
        environment = {name: variables[name] for name in variables.keys() - {*tests_own}}
        given = {"cwd": folder, "env": environment}
        return helpers.program(programs / program, *words, **given, code=0).stdout

    run.folder = folder
    return run


def copied(folder):
    """The files of the package alone, so that the build leaves nothing in the checkout."""
    folder.mkdir()
    names = ("pyproject.toml", "README.md", "LICENSE")
    for name in (*names, "vlc_jax", "input_pipeline", "configs", "launch"):
        os.symlink(helpers.ROOT / name, folder / name)
    return folder


def test_the_package_is_the_installed_one(run):
    path = run("python", "-c", "import vlc_jax; print(vlc_jax.__file__)").strip()
    assert "site-packages" in path
    assert not path.startswith(str(helpers.ROOT))


def test_the_compiler_sums_right():
    # jax 0.10.2 does not, without a word: jax-ml/jax#39103
    rows = np.random.default_rng(0).normal(size=(32_769, 3)).astype(np.float32)
    norms = jax.jit(jax.vmap(lambda row: jnp.sum((jnp.eye(3) @ row) ** 2)))(rows)
    np.testing.assert_allclose(norms, (rows**2).sum(-1), rtol=1e-5)


def test_help_and_list(run):
    assert "--workdir" in run("vlc-jax", "--help")
    script = run("vlc-jax", "launch", "slurm.sbatch").strip()
    assert "site-packages" in script
    assert os.path.isfile(script)
    listed = run("vlc-jax", "--list")
    assert all(name in listed for name in ("scenes/clip", "infonce", "sugarcrepe"))


@pytest.fixture(scope="module")
def project(run):
    """A folder with packages of its own, `configs` and `input_pipeline`, as research code has."""
    folder = run.folder / "project"
    for name in ("configs", "input_pipeline"):
        (folder / name).mkdir(parents=True)
        (folder / name / "mine.py").write_text(f"NAME = {name!r}\n")
    return folder


BOTH = """
import configs.mine, input_pipeline.mine, vlc_jax.configs.default, vlc_jax.input_pipeline.record
print(configs.mine.NAME, input_pipeline.mine.NAME, vlc_jax.load.__name__)
"""


def test_the_wheel_owns_one_import_name(run, project):
    files = run("python", "-m", "pip", "show", "--files", "vlc_jax").partition("Files:")[2]
    tops = {line.split("/")[0].strip() for line in files.splitlines() if line.strip()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"..", "vlc_jax"}
    (project / "program.py").write_text(BOTH)
    assert run("python", project / "program.py").split() == ["configs", "input_pipeline", "load"]


def test_a_checkout_leaves_the_names_of_a_project_alone(project):
    """As a path behind the project's own, which is where an editable installation stands."""
    path = {**helpers.environment(), "PYTHONPATH": str(helpers.ROOT)}
    done = helpers.program(sys.executable, "-c", BOTH, cwd=project, env=path)
    assert done.stdout.split() == ["configs", "input_pipeline", "load"], done.stderr


def demo() -> list[str]:
    """The words of the first command of `make demo`."""
    words = ("make", "-n", "demo")
    recipe = subprocess.check_output(words, cwd=helpers.ROOT, text=True)
    return re.search(r"vlc_jax\.main (--config .*quickstart --workdir .*)", recipe)[1].split()


def test_the_demo_begins(run):
    """Its first four steps, with two of its benchmarks."""
    words = demo()
    config = words.index("--config") + 1
    words[config] = words[config].removeprefix("configs/").replace(".py", "")
    evals = "{'scenes_retrieval': {'count': 32}, 'scenes_attribute_swap': {'count': 32}}"
    short = ("--config.steps=4", "--config.optimizer.warmup_steps=2", f"--config.evals={evals}")
    shown = run("vlc-jax", *words, *short)
    assert "report.html" in shown
    assert (run.folder / "runs/demo/clip/DONE").exists()
    rows = helpers.rows(run.folder / "runs/demo/clip/metrics.jsonl")
    assert rows[-1]["step"] == 4
