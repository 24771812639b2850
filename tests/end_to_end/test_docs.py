"""Every command in README and docs is run, shrunken, in the order in which it is written."""

import ast
import importlib.util
import inspect
import json
import os
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from tests.support import helpers, miniature, sets, small_models, tiny_llama
from vlc_jax import models
from vlc_jax.configs import default, hp_hn
from vlc_jax.input_pipeline.commands import generated_texts, prepare
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.sources import SOURCES, shards
from vlc_jax.input_pipeline.tokenizers import TOKENIZERS, clip_bpe
from vlc_jax.setup import data

PAGES = ["README.md", *sorted(f"docs/{p.name}" for p in (helpers.ROOT / "docs").glob("*.md"))]
NOTEBOOKS = sorted(path.name for path in (helpers.ROOT / "docs" / "notebooks").glob("*.ipynb"))
MADE_BY_CI = ("make demo", "make test", "make test-all")

PROGRAMS = {"python": (), "vlc-jax": ("-m", "vlc_jax")}  # as tests/setup/test_catalogue.py has it

SHORT = (
    "--config.steps=2",
    "--config.batch_size=8",
    "--config.optimizer.warmup_steps=1",
    "--config.eval.batch_size=8",
    "--config.input.scenes.count=32",
    "--config.input.preview=4",
)
SHALLOW = "--config.model.image={'depth': 1}"
POOLED = "--config.model.image={'depth': 1, 'pooling': 'mean'}"  # a shallow one, too
SHALLOW_TEXT = "--config.model.text={'depth': 1}"
SMALL = (*SHORT, SHALLOW, SHALLOW_TEXT)
OWN = ("--config.epochs=1", *SMALL[1:])
EVALS = {name: {"count": 8} for name in ("scenes_retrieval", "scenes_relation_swap")}
# texts of a run, and a run on them
VECTORS = (*SHORT, SHALLOW, f"--config.evals={EVALS}")
SCENES = (*VECTORS, SHALLOW_TEXT)
REPLACE = (*SHORT, SHALLOW, SHALLOW_TEXT, "--config.evals={'scenes_replace': {'count': 8}}")
PRETRAINED = (SHALLOW, SHALLOW_TEXT, "--config.eval.batch_size=8")
SHRINK = {  # start of a command -> what is added to it, the last match
    "python -m vlc_jax.main --config configs": SCENES,
    # this one trains CLIP first
    "python -m vlc_jax.main --config configs/hp_hn.py --workdir": (
        *SCENES,
        *(flag.replace("--config.", "--config.pretrain.") for flag in SCENES),
    ),
    "python -m vlc_jax.main --config configs/scenes/text_vectors": VECTORS,
    "python -m vlc_jax.main --mode plan --config configs": SCENES,
    "vlc-jax cache_features --config configs": (*SHORT, *PRETRAINED),
    "vlc-jax embed_text --config configs": VECTORS,
    "python -m vlc_jax.main --config configs/digits.py": SMALL,
    "python -m vlc_jax.main --config configs/clip_ft.py:data=coco": (
        *(*SHORT[1:], *PRETRAINED, "--config.epochs=1"),
    ),
    "python -m vlc_jax.main --mode eval --config configs": PRETRAINED,
    "python -m vlc_jax.main --mode eval --workdir runs/suite": ("--config.eval.batch_size=8",),
    "python -m vlc_jax.main --config configs/records.py": OWN,
    # of few records
    "python -m vlc_jax.main --config configs/records.py:path=prepared": (
        *("--config.epochs=3", *SMALL[1:]),
    ),
    "vlc-jax --config records": OWN,
    "vlc-jax --config finetune": (*OWN, "--config.model.variant=B/32"),
    "vlc-jax --mode eval --config finetune": (*PRETRAINED, "--config.model.variant=B/32"),
    "vlc-jax --config hp_hn": (  # this one trains CLIP first
        *SHORT,
        SHALLOW,
        SHALLOW_TEXT,
        "--config.evals={'scenes_attribute_swap': {'count': 8}}",
        *(flag.replace("--config.", "--config.pretrain.") for flag in SCENES),
    ),
    "vlc-jax --config scenes": REPLACE,
    "vlc-jax --config halves": (
        *SHORT[:3],
        "--config.evals.which_is_left.count=8",
        "--config.log_every=1",
    ),
    "vlc-jax --config hn:": REPLACE,
    "vlc-jax --config hp_hn:": REPLACE,
    "python speed/step.py": ("--model=mini", "--batch=16", "--rounds=1", "--no-torch"),
    "python speed/heads.py": ("--heads", "pacl", "--batches", "4", "--rounds=1"),
    "vlc-jax sweep": ("--dry-run",),
    "python speed/loss.py": ("--batches", "16", "--rounds=1", "--chunk=4"),
    "python speed/loader.py": ("--rounds=1", "--records=4"),
}


def joined_lines(block: str) -> list[str]:
    """The commands of a bash block; a backslash continues a line."""
    return re.sub(r"\\\n\s*", "", block).splitlines()


def commands(page: str) -> list[str]:
    """The commands of every bash block of a page."""
    text = (helpers.ROOT / page).read_text()
    return [
        line
        for block in re.findall(r"```bash\n(.*?)```", text, re.S)
        for line in joined_lines(block)
    ]


def words_before_run(command: str, page: str) -> list[str] | None:
    """The word before a run's folder wherever else the page names it, such as
    `--config.init_from=`; [] for a run that nothing reads.

    None for a command that trains no run, and for the README, all of whose commands run whole.
    """
    starts = re.match(r"python -m vlc_jax\.main --config .*--workdir (\S+)", command)
    if starts is None or page == "README.md":
        return None
    text = "\n".join([*commands(page), *programs(page)])
    before = re.findall(rf"(\S+[= ]|\S*){re.escape(starts[1])}(?![\w/])", text)
    before.remove("--workdir ")  # of the command itself
    return before


def steps(page: str) -> list[tuple[str, str]]:
    """The commands and programs of a page as ("bash", line) and ("python", block), in order."""
    text, listed = (helpers.ROOT / page).read_text(), []
    for language, block in re.findall(r"```(bash|python)\n(.*?)```", text, re.S):
        if language == "bash":
            listed += [("bash", line) for line in joined_lines(block)]
        elif block in programs(page):
            listed.append(("python", block))
    return listed


def programs(page: str) -> list[str]:
    """Every python block of a page that imports vlc_jax."""
    blocks = re.findall(r"```python\n(.*?)```", (helpers.ROOT / page).read_text(), re.S)
    return [block for block in blocks if "import vlc_jax\n" in block]


def shrunken(command: str, sha256: str) -> list[str]:
    program, *words = shlex.split(command)
    assert program in PROGRAMS, f"no test knows how to run {command!r}"
    words = [*PROGRAMS[program], *words]
    words = [word.replace("ViT-B-32@openai", "my_weights") for word in words]  # no network
    if any("weights=my_weights" in word for word in words):  # their vocabulary is not OpenAI's
        words.append(f"--config.text.tokenizer_options.sha256={sha256}")
    extra = [flags for start, flags in SHRINK.items() if command.startswith(start)]
    words += extra[-1] if extra else ()
    is_pooled = "mean" in command or "hard_images" in command  # the folder of a run says so, too
    return [POOLED if word == SHALLOW and is_pooled else word for word in words]


@pytest.fixture
def folder(tmp_path):
    """A copy of the checkout as its reader sees it, with photos, both tables and all datasets."""
    miniature.write(tmp_path)
    for name in ("configs", "vlc_jax", "input_pipeline", "speed", "launch", "tests"):
        os.symlink(helpers.ROOT / name, tmp_path / name)
    photos = tmp_path / "my_photos"
    names = helpers.write_photos(photos, 24)
    captions = [f"a small dog and a red cat in picture {i}" for i in range(len(names))]
    rows = ({"image": n, "caption": c} for n, c in zip(names, captions, strict=True))
    helpers.write_rows(photos / "captions.jsonl", rows)
    labelled = [f"{name},{text},{k}" for name in names for k, text in enumerate(("cat", "dog"))]
    for table in ("pairs.csv", "new_pairs.csv"):
        (photos / table).write_text("\n".join(["image,text,match", *labelled]) + "\n")
    images = [{"id": i, "file_name": name} for i, name in enumerate(names)]
    annotations = [
        {"id": 100 * i + k, "image_id": i, "caption": f"picture {i}, caption {k}"}
        for i in range(len(names))
        for k in range(2)
    ]
    (photos / "captions_coco.json").write_text(
        json.dumps({"images": images, "annotations": annotations})
    )
    return tmp_path


def write_weights(folder):
    """Random numbers of the shapes of a shallow ViT-B/32 and a tokenizer as Hugging Face writes
    them; returns the sha256 of its merges.
    """
    model = models.build("clip", "B/32", image={"depth": 1}, text={"depth": 1})
    fields = {"hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
    small_models.write_hugging_face(folder, model, "hf_clip", 0.02, **fields)
    sha256 = helpers.write_clip_vocabulary(folder / "gz")
    for name, content in clip_bpe.ClipTokenizer(path=folder / "gz", sha256=sha256).files().items():
        (folder / name).write_text(content, "utf-8")
    return sha256


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_runs(page, folder):
    has_weights = page in ("README.md", "docs/weights.md")
    sha256 = write_weights(folder / "my_weights") if has_weights else ""
    if page in ("docs/benchmarks.md", "docs/library.md"):
        sets.write_all(folder / "sets")
    if page == "docs/texts.md":
        tiny_llama.write(folder / "Llama-2-7b-chat-hf")
    for language, text in steps(page):
        if text in MADE_BY_CI:
            continue
        if language == "python":
            (folder / "program.py").write_text(text)
            words = ["program.py"]
        else:
            words, before = shrunken(text, sha256), words_before_run(text, page)
            if before and all(word.endswith("init_from=") for word in before):  # not its results
                words.append("--config.evals={}")
            # tests/configs/test_config_training.py trains its config
            if before == []:
                words[1] = "tests.support.until_compiled"
        done = helpers.python(*words, cwd=folder)
        assert done.returncode == 0, f"{text}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_cell_of_a_notebook_runs(name, folder):
    notebook = json.loads((helpers.ROOT / "docs" / "notebooks" / name).read_text())
    lines = ["import subprocess", "import sys"]
    for cell in notebook["cells"]:
        if cell["cell_type"] != "code":
            continue
        assert cell["outputs"] or cell["execution_count"], f"a cell of {name} was never run"
        for line in "".join(cell["source"]).splitlines():
            if line.startswith("!"):
                # IPython fills in variables; those of the test come last and win
                words = shrunken(line[1:].replace('--config.evals="{evals}"', ""), "")
                line = f"subprocess.run([sys.executable, *{words!r}], check=True)"
            lines.append(line)
    (folder / "notebook.py").write_text("\n".join(lines))
    done = helpers.python("notebook.py", cwd=folder)
    assert done.returncode == 0, done.stderr


def indented(page: str, start: str) -> list[str]:
    """The words of the one command of a page that is no bash block and starts like this."""
    text = (helpers.ROOT / page).read_text().replace("\\\n", " ")
    (line,) = [line for line in text.splitlines() if line.startswith(f"    {start} ")]
    return shlex.split(line)


def test_texts_for_hp_hn_are_of_the_versions_of_its_config():
    words = indented("docs/methods.md", "vlc-jax prepare")
    named = {side: words[words.index(f"--{side}") + 1] for side in ("negatives", "positives")}
    made = generated_texts.make(*(names.split(",") for names in named.values()), {})
    texts = data.hard_texts(hp_hn.get_config("data=coco,path=prepared/coco_texts"))
    assert {side: [*texts[side].generators] for side in named} == {
        side: names.split(",") for side, names in named.items()
    }
    sampling.check_stored({side: texts[side].generators for side in named}, versions(made))


def versions(made):
    return {side: {k: each.version for k, each in made[side].items()} for side in made}


def test_files_of_hard_positives_are_kept_with_prepared_images(tmp_path, monkeypatch):
    miniature.write_coco(tmp_path / "coco")
    monkeypatch.chdir(tmp_path)
    captions = json.loads(Path("coco/annotations/captions_train2017.json").read_text())
    lines = [json.dumps(f"other {each['caption']}") for each in captions["annotations"]]
    for kind in ("replace", "swap"):
        Path(f"{kind}_hp.jsonl").write_text("\n".join([*lines[:-1], '"None"']) + "\n")
    words = indented("docs/texts.md", "vlc-jax prepare --source coco")
    assert prepare.main(words[2:]) == 0
    source = shards.ShardsSource("train", path="prepared/coco_hp")
    record = source[0]
    assert record.positives == [[f"other {text}"] * 2 for text in record.captions]
    assert record.positive_kinds == [["replace", "swap"]] * len(record.captions)
    assert source.text_versions == {}  # no generator made them
    kinds = [kind for i in range(len(source)) for each in source[i].positive_kinds for kind in each]
    assert len(kinds) == 2 * (len(lines) - 1)


def test_ci_runs_what_the_readme_asks_for():
    parts = tomllib.loads((helpers.ROOT / ".ci/parts.toml").read_text())
    commands_ = [part["command"] for part in parts.values() if isinstance(part, dict)]
    made = {word for command in commands_ for word in command.split()}
    (needs,) = re.findall("^test-all: (.*?) *##", (helpers.ROOT / "Makefile").read_text(), re.M)
    for command in MADE_BY_CI:
        assert command in commands("README.md")
        target = command.removeprefix("make ")
        assert {*needs.split()} <= made if target == "test-all" else target in made


def test_the_readme_is_short_and_begins_with_own_photos():
    text = (helpers.ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 120
    assert len(text.split()) <= 900
    screen = "".join(text.splitlines(True)[:45])
    (program,) = programs("README.md")
    assert program in screen
    assert len(program.splitlines()) <= 10
    lines = commands("README.md")
    first = "vlc-jax --config finetune:weights=ViT-B-32@openai,data=my_photos/"
    assert any(line.startswith(first) and "method=" in line for line in lines)


def test_the_makefile_runs_the_documented_demo():
    recipe = helpers.program("make", "-n", "demo", code=0).stdout
    recipe = " ".join(recipe.replace("\\\n", " ").split())
    runs = (
        "scenes/clip.py:quickstart --workdir runs/demo/clip",
        "hn.py:steps=150 --workdir runs/demo/hn",
    )
    for run in (*runs, "hp_hn.py:steps=150 --workdir runs/demo/hp_hn"):
        assert f"vlc_jax.main --config configs/{run}" in recipe
    assert recipe.count("--config.init_from=runs/demo/clip") == 2
    compared = "runs/demo/clip runs/demo/hn runs/demo/hp_hn --out runs/demo"
    assert f"vlc_jax.report {compared}" in recipe
    assert "`runs/demo/comparison.html`" in (helpers.ROOT / "README.md").read_text()


def test_the_page_of_config_fields_has_all_of_them():
    path = helpers.ROOT / "docs" / "config_fields.py"
    spec = importlib.util.spec_from_file_location("config_fields", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    rows = module.fields(module.DEFAULT.read_text())
    values = dict(leaves("", default.get_config().to_dict()))
    assert sorted(row.path for row in rows) == sorted(values)
    for row in rows:
        written = row.default.partition(" ")[0] if "None (" in row.default else row.default
        assert ast.literal_eval(written) == values[row.path], row
    assert sum(not row.meaning for row in rows) < 25
    text = module.page(rows)
    assert (
        "| `optimizer.schedule` | `'cosine'` | cosine \\| linear, both to 0 \\| constant |" in text
    )
    assert (
        text.count("\n## ") == len({row.path.split(".")[0] for row in rows if "." in row.path}) + 1
    )


def leaves(path, value):
    """(dotted path, value) of every field, an empty table among them."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from leaves(f"{path}.{key}" if path else key, item)
    else:
        yield path, value


def test_messages_of_the_troubleshooting_page_are_printed():
    page = (helpers.ROOT / "docs/troubleshooting.md").read_text()
    folders = (helpers.ROOT / name for name in ("vlc_jax", "input_pipeline"))
    code = "".join(path.read_text() for one in folders for path in one.rglob("*.py"))
    for message in (
        "is not finite (loss", "the spike guard", "learned from them", "out of memory",
        "are training images (equal files)", "no connection to its server", "cannot start JAX",
        "HF_HUB_OFFLINE is set", "is no multiple of the patches'", "(/lnB ",
    ):  # fmt: skip
        assert message in page
        assert message in code


@pytest.mark.parametrize("page", PAGES)
def test_every_link_and_named_file_is_there(page):
    text = (helpers.ROOT / page).read_text()
    for link in re.findall(r"\]\(([^)#:]+)\)", text):
        assert ((helpers.ROOT / page).parent / link).exists(), link
    for path in re.findall(
        r"`((?:configs|vlc_jax|input_pipeline|launch|tests|speed|studies|docs)/[\w/.]+)`", text
    ):
        assert (helpers.ROOT / path).exists() or "NAME" in path, path


def test_every_config_field_that_is_named_exists():
    known = default.get_config()
    folders = [helpers.ROOT / name for name in ("docs", "configs", "vlc_jax", "input_pipeline")]
    files = [helpers.ROOT / "README.md"]
    files += [path for one in folders for path in one.rglob("*") if path.suffix in (".md", ".py")]
    named = {
        (path.name, field)
        for path in files
        for field in re.findall(r"--config((?:\.[a-z_0-9]+)+)", path.read_text())
        if not field.startswith(".evals.")  # those are the run's own
    }
    assert len(named) > 5
    tables = {"source_options": SOURCES, "tokenizer_options": TOKENIZERS}
    for file, field in named:
        node, keys = known, field[1:].split(".")
        if len(keys) > 2 and keys[1] in tables:  # an option of one of them
            makers = tables[keys[1]].values()
            node = {name for make in makers for name in inspect.signature(make).parameters}
            keys = keys[2:3]
        for key in keys:
            assert key in node, f"{file} names --config{field}"
            node = getattr(node, key, None)
