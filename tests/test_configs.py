"""Every shipped config is built, evaluated by shape, and trained for two shrunken steps."""

import importlib
from pathlib import Path

import jax
import pytest
import tokenizers
from ml_collections import ConfigDict

from configs import arguments
from tests import helpers
from vlc_jax import build, evaluators, models, train
from vlc_jax.preemption import StopSignal
from vlc_jax.workdir import Workdir

CONFIGS = sorted(
    path
    for path in (helpers.ROOT / "configs").rglob("*.py")
    if path.name not in ("__init__.py", "arguments.py", "families.py")
)


# Arguments of configs that name files, {tokenizer} being one that the test writes.
ARGUMENTS = dict.fromkeys(
    (
        *("configs/eval/zero_shot.py", "configs/coco/clip_ft.py", "configs/coco/clip_coco.py"),
        "configs/coco/siglip_ft.py",
    ),
    "tokenizer={tokenizer}",
)
SMALL = {"width": 16, "heads": 2, "depth": 1}


def load(path: Path, folder: Path, more: str = "") -> ConfigDict:
    tokenizer = folder / "tokenizer.json"
    words = {"</s>": 0, "<pad>": 1, "picture": 2, "number": 3}
    made = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="picture"))
    made.save(str(tokenizer))
    name = ".".join(path.relative_to(helpers.ROOT).with_suffix("").parts)
    get_config = importlib.import_module(name).get_config
    if identifier(path) not in ARGUMENTS:
        return get_config()
    config = get_config(ARGUMENTS[identifier(path)].format(tokenizer=tokenizer) + more)
    if config.text.tokenizer == "clip":
        config.text.clip.path = str(folder / "clip.txt.gz")
        config.text.clip.sha256 = helpers.write_clip_vocabulary(folder / "clip.txt.gz")
    return config


def shrink(config: ConfigDict, folder: Path) -> ConfigDict:
    """Two steps of sixteen pairs, the first case of everything."""
    with config.unlocked():
        config.steps, config.epochs, config.examples = 2, None, None
        config.batch_size = 16
        config.eval.batch_size = 16
        config.optimizer.warmup_steps = 1
        config.input.scenes.count = 32
        config.input.preview = 4
        for options in config.evals.values():
            options.count = 8
        if config.input.source == "records":
            names = helpers.write_photos(folder / "photos", 24)
            config.input.records.path = str(helpers.write_jsonl(folder, names))
            config.input.records.image_folder = str(folder / "photos")
        if config.model.variant != "mini":
            config.model.image, config.model.text = dict(SMALL), {**SMALL, "projection": 16}
            if not config.model.variant.startswith("SigLIP"):
                config.model.image.projection = 16
    return config


def identifier(path: Path) -> str:
    return str(path.relative_to(helpers.ROOT))


@pytest.mark.parametrize("path", CONFIGS, ids=identifier)
def test_config_has_a_command_on_top_and_only_known_names(path, tmp_path):
    config = load(path, tmp_path)
    assert f"--config {identifier(path)}" in path.read_text() or path.name == "default.py"
    assert config.is_locked
    for name in config.evals:
        evaluators.lookup(name)


@pytest.mark.parametrize("path", CONFIGS, ids=identifier)
def test_state_of_the_full_config_has_its_shapes(path, tmp_path):
    config = load(path, tmp_path)
    task = build.task(config)
    shapes = build.state_shapes(task.mesh, build.init_state(config, task.model, 1000, {}), {})
    count = models.parameter_counts(shapes.params)["total"]
    assert count == sum(x.size for x in jax.tree.leaves(shapes.params))
    moments = [x for x in jax.tree.leaves(shapes.opt_state) if x.ndim]
    frozen = sum(  # by "image/.*", the only rule that configs have
        x.size for x in jax.tree.leaves(shapes.params["image"]) if config.optimizer.multipliers
    )
    assert sum(x.size for x in moments) >= 2 * (count - frozen - 10)


@pytest.mark.slow
@pytest.mark.parametrize("path", CONFIGS, ids=identifier)
def test_config_trains_two_steps(path, tmp_path):
    config = shrink(load(path, tmp_path), tmp_path)
    workdir = Workdir(tmp_path / "run")
    try:
        train.train(config, workdir, StopSignal(), allow_change=False)
    finally:
        workdir.close()
    assert (workdir.path / "DONE").exists()
    assert len(helpers.rows(workdir.path / "metrics.jsonl")) == 1
    for name in config.evals:
        assert (workdir.path / "evals" / name / "2.json").exists()


@pytest.mark.parametrize(("variant", "size"), [("EVA02-B/16", 224), ("EVA02-L/14-336", 336)])
def test_zero_shot_knows_eva02_by_its_variant_alone(variant, size, tmp_path):
    path = helpers.ROOT / "configs/eval/zero_shot.py"
    config = load(path, tmp_path, f",variant={variant},size={size}")
    model = build.task(config).model
    assert (model.image.activation, model.text.activation) == ("swiglu", "gelu")
    assert (model.image.epsilon, model.text.epsilon) == (1e-6, 1e-5)
    assert (model.image.rope, model.image.grid) == ("qk_2d", size // model.image.patch_size)


def test_arguments_are_parsed_by_the_types_of_their_defaults():
    parsed = arguments.parse("steps=20,flag,share=.5", steps=1, flag=False, share=0.1, path="a")
    assert vars(parsed) == {"steps": 20, "flag": True, "share": 0.5, "path": "a"}


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        ("step=3", "did you mean 'steps'"),
        ("steps=x", "steps is a int; got 'x'"),
        ("flag=maybe", "flag is true or false"),
    ],
)
def test_a_wrong_argument_is_an_error(argument, words):
    with pytest.raises(ValueError, match=words):
        arguments.parse(argument, steps=1, flag=False)


def test_the_world_of_clip_is_that_of_its_texts_and_benchmarks():
    config = importlib.import_module("configs.scenes.clip").get_config("world=scenes-hues")
    worlds = [config.input.scenes.world, config.text.scenes.world]
    worlds += [options.world for options in config.evals.values()]
    assert set(worlds) == {"scenes-hues"}


def test_options_of_scenes_reach_the_source():
    config = importlib.import_module("configs.default").get_config()
    with config.unlocked():
        config.input.scenes.captions = 1
        config.input.scenes.world_options = {"colour_jitter": 20.0}
        config.input.scenes.caption_options = {"colour": 1.0, "relation": 1.0}
        config.input.scenes.hard_images = (("relation", 1.0),)
    source = build.source(config, "train")
    assert source.world.colour_jitter == 20.0
    assert source.style.colour == 1.0
    assert [source.find(id).id for id in source[0].hard_images] == [f"{source[0].id}~relation"]
