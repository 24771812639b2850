"""Text vectors from a run to a file to another run; features of the image tower alone."""

import json
import pickle
import shutil

import numpy as np
import pytest
from ml_collections import ConfigDict

import vlc_jax
from tests.support import helpers, recipes
from tests.support.runs import losses
from tests.support.training import train
from vlc_jax.configs import default
from vlc_jax.configs.common import arguments, finetuning, heads
from vlc_jax.configs.scenes import clip, text_vectors
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.evaluation import mode
from vlc_jax.input_pipeline.hard_texts.left_right import LeftRight
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir, saved_config
from vlc_jax.setup import data, init_from, resolve
from vlc_jax.tools import cache_features, embed_text, export, features_of

pytestmark = pytest.mark.slow

TOWER = {"width": 16, "heads": 2, "depth": 1}
EVALS = {"scenes_zero_shot_objects": {"split": "validation", "count": 16}}
EVALS["scenes_swap"] = EVALS["scenes_zero_shot_objects"]
SMALL = {
    "batch_size": 16,
    "optimizer.warmup_steps": 1,
    "input.scenes.count": 24,
    "input.preview": 4,
    "log_every": 1,
    "eval.batch_size": 16,
    "checkpoint.every": 2,
}


def shrunken(config, **fields):
    with config.unlocked():
        config.update_from_flattened_dict({**SMALL, **fields})
        config.evals = ConfigDict(EVALS)
        config.pretrain = ConfigDict()
        config.model.image.update({**TOWER, "stem": (4, 8, 16), "projection": 8})
        of_text = {} if config.text.tokenizer == "vectors" else TOWER
        config.model.text.update({**of_text, "projection": 8})
    return config


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A run whose towers the others start from."""
    config = shrunken(clip.get_config("pooling=mean,steps=2"))
    return train(config, tmp_path_factory.mktemp("base") / "run")


@pytest.fixture(scope="module")
def file(base, tmp_path_factory):
    """Its vectors of all texts that a run on vectors reads, as the command line writes them."""
    folder = tmp_path_factory.mktemp("vectors")
    texts = embed_text.texts_of(vector_config("", base))
    (folder / "texts.txt").write_text("\n".join(texts))
    done = embedded("--texts", folder / "texts.txt", "--run", base, "--out", folder / "x.npy")
    assert done.returncode == 0, done.stderr
    assert f"vectors of {len(texts)} texts, 8 wide" in done.stdout
    return folder / "x.npy"


def test_left_and_right_exchanged_have_vectors(base):
    config = shrunken(vector_config("", base))
    with config.unlocked():
        config.input.hard_images, config.input.scenes.hard_images = 0, ()
        config.input.scenes.caption_options.place = 1.0
        plain = {*embed_text.texts_of(config)}
        finetuning.use_negatives(config, left_right=1.0)
    exchanged = {LeftRight()(text, None, 1)[0] for text in plain if "on the left" in text}
    assert exchanged - plain
    assert exchanged - plain <= {*embed_text.texts_of(config)} - plain


def embedded(*flags):
    return helpers.python("-m", "vlc_jax.tools.embed_text", *flags)


def test_a_request_without_an_encoder_is_refused(file):
    for flags, words in (
        (("--texts", file.with_suffix(".jsonl")), "an encoder, --model or --run"),
        (("--config", "configs/scenes/clip.py", "--run", file.parent), "is not a workdir"),
    ):
        done = embedded(*flags, "--out", file.with_name("y.npy"))
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr
        assert "Traceback" not in done.stderr
    assert not file.with_name("y.npy").exists()


def vector_config(file, base, more=""):
    config = text_vectors.get_config(f"steps=4,vectors={file}{more}")
    return shrunken(config, init_from=str(base))


@pytest.fixture(scope="module")
def live(file, base, tmp_path_factory):
    return train(vector_config(file, base), tmp_path_factory.mktemp("live") / "run")


def test_only_connector_and_scale_are_trained(live):
    env = json.loads((live / "env.json").read_text())
    assert env["parameters"]["trained"] == 8 * 8 + 8 + 1
    assert {"train", "weights", "vectors"} == set(env["input"])
    for name in EVALS:
        assert (live / "evals" / name / "4.json").exists()


def test_a_loaded_run_scores_any_text(live, base, file):
    text, pixels = "a red square and a red square and a red square", np.zeros((40, 40, 3), np.uint8)
    assert json.dumps(text) not in file.with_suffix(".jsonl").read_text().splitlines()
    model = vlc_jax.load(live)
    (vector,) = vlc_jax.load(base).embed_texts([text])
    connector = model._variables["params"]["text"]["projection"]
    expected = vector @ np.asarray(connector["kernel"]) + np.asarray(connector["bias"])
    (found,) = model.embed_texts([text])
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected), atol=1e-5)
    scores = model.score([pixels], [text])
    np.testing.assert_allclose(scores, model.embed_images([pixels]) @ found[:, None], atol=1e-5)


def test_an_evaluation_encodes_the_texts_that_the_file_lacks(live, base, file, tmp_path):
    path, few = tmp_path / "run", tmp_path / "few.npy"
    shutil.copytree(live, path)
    shutil.rmtree(path / "evals")
    texts = [json.loads(line) for line in file.with_suffix(".jsonl").read_text().splitlines()]
    benchmark = data.benchmarks(vector_config(file, base))["scenes_swap"].read()
    lacking = set(benchmark.texts[:3])
    kept = [place for place, text in enumerate(texts) if text not in lacking]
    np.save(few, np.load(file)[kept])
    few.with_suffix(".jsonl").write_text("\n".join(json.dumps(texts[place]) for place in kept))
    shutil.copy(file.with_suffix(".encoder.json"), few.with_suffix(".encoder.json"))
    config = vector_config(few, base)
    workdir = Workdir(path)
    try:
        mode.evaluate_workdir(resolve(config, "eval"), workdir, StopSignal(), True)
    finally:
        workdir.close()
    for name in EVALS:
        found, expected = (
            [row["scores"] for row in helpers.rows(run / "evals" / name / "4.scores.jsonl")]
            for run in (path, live)
        )
        np.testing.assert_allclose(found, expected, atol=1e-5)


def test_a_run_refuses_other_vectors_than_those_it_began_with(live, file, base, tmp_path):
    path, other = tmp_path / "run", tmp_path / "x.npy"
    shutil.copytree(live, path)
    shutil.copy(file.with_suffix(".jsonl"), other.with_suffix(".jsonl"))
    np.save(other, -np.load(file))
    config = vector_config(file, base)
    config.text.tokenizer_options = {"path": str(other)}
    with pytest.raises(UsageError, match=r"text\.tokenizer_options\.path"):
        train(config, path)
    original = file.read_bytes()
    try:
        np.save(file, -np.load(file))
        with pytest.raises(UsageError, match=r"data of the run .* changed:\n  vectors: "):
            train(vector_config(file, base), path)
        setup = resolve(saved_config(path), "eval")
        with pytest.raises(WeightsError, match="was trained on other vectors"):  # evaluation, too
            init_from.load_latest(setup, path)
    finally:
        file.write_bytes(original)


def test_a_text_without_a_vector_is_named_before_training(file, base, tmp_path):
    lines = file.with_suffix(".jsonl").read_text().splitlines()
    rows = np.load(file)
    texts = [json.loads(line) for line in lines]
    benchmark = data.benchmarks(vector_config(file, base))["scenes_swap"].read()
    positive = benchmark.cases[-1].meta["positive"]
    for lacking, words in ((positive, "benchmark scenes_swap: no vector of "), (texts[0], "no ")):
        kept = [place for place, text in enumerate(texts) if text != lacking]
        np.save(tmp_path / "x.npy", rows[kept])
        kept_lines = "\n".join(lines[place] for place in kept)
        (tmp_path / "x.jsonl").write_text(kept_lines)
        with pytest.raises(DataError, match=f"{words}.*{lacking}.*vlc-jax embed_text"):
            train(vector_config(tmp_path / "x.npy", base), tmp_path / "run")
        assert not (tmp_path / "run/metrics.jsonl").exists()


def test_a_run_on_vectors_has_no_form_of_other_projects(live, tmp_path):
    with pytest.raises(UsageError, match="reads vectors of texts"):
        export.export(live, "hf", tmp_path / "out")


def test_another_run_starts_from_the_connector_of_vectors(live, file):
    setup = resolve(vector_config(file, live))
    found = init_from.load(setup, setup.parameters.shapes)
    assert found["text"]["projection"]["kernel"].shape == (8, 8)
    setup = resolve(shrunken(clip.get_config("pooling=mean"), init_from=str(live)))
    assert set(init_from.load(setup, setup.parameters.shapes)) == {"image"}


def test_of_published_weights_the_image_tower_is_taken_alone(file, tmp_path):
    _, small = recipes.write_clip(tmp_path / "weights")
    config = default.get_config()
    with config.unlocked():
        config.init_from = str(tmp_path / "weights/ViT-B-32.safetensors")
        config.model.variant = "B/32"
        config.model.image, config.model.text = small["image"], {"projection": 16}
        config.input.image_size, config.text.tokenizer = 224, "vectors"
        config.text.tokenizer_options = {"path": str(file)}
        config.frozen = ("image",)
    setup = resolve(config, "eval")
    shapes = setup.parameters.shapes
    assert set(shapes) == {"image", "text", "logit_scale"}
    assert set(init_from.load(setup, shapes)) == {"image"}
    frozen, _ = init_from.load_frozen(setup)
    assert set(frozen) == {"image"}
    config.frozen = ("image", "text")
    with pytest.raises(UsageError, match=r"ViT-B-32.safetensors has no text of this model"):
        init_from.load_frozen(resolve(config, "eval"))


def with_text_tower(base):
    """The text tower trained, the image tower not."""
    args = arguments.parse("steps=4,text_tower=unlocked", **heads.SCENES, **heads.TOWERS)
    config = heads.on_scenes(args)
    with config.unlocked():
        heads.use(config, "clip", 0.07, heads.towers(args))
    return shrunken(config, init_from=str(base))


@pytest.fixture(scope="module")
def stored(file, base, tmp_path_factory):
    """Features of the frozen image tower, stored for a run on vectors."""
    folder = tmp_path_factory.mktemp("stored") / "features"
    manifest = cache_features.store(resolve(vector_config(file, base)), folder, "float32", 20)
    assert manifest["count"] == 48  # and hard images
    return folder


def test_features_of_workers_are_those_of_one_process(file, base, stored, tmp_path):
    def engine(work, report, advance):
        for number in reversed(range(work.count)):
            features_of._made.cache_clear()
            assert report(pickle.loads(pickle.dumps(work)).write(number))

    setup = resolve(vector_config(file, base))
    cache_features.store(setup, tmp_path / "out", "float32", 20, engine)
    assert len([*stored.iterdir()]) == 7
    for path in stored.iterdir():
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes(), path.name


def on_features(config, folder):
    config.input.source = "features"
    config.input.source_options = {"path": str(folder)}
    return config


@pytest.mark.parametrize("kind", ["vectors", "tokens"])
def test_stored_features_train_any_text_side_as_the_tower(live, file, base, stored, tmp_path, kind):
    if kind == "vectors":
        expected, config = losses(live), vector_config(file, base)
    else:
        expected = losses(train(with_text_tower(base), tmp_path / "live"))
        config = with_text_tower(base)
    found = losses(train(on_features(config, stored), tmp_path / "run"))
    assert found == pytest.approx(expected, rel=1e-5)
    assert len(set(found)) == 4


def test_features_without_texts_are_refused_for_frozen_texts(base, stored, tmp_path):
    config = on_features(with_text_tower(base), stored)
    config.frozen = ("image", "text")
    with pytest.raises(UsageError, match=r"frozen \['image'\], not \['image', 'text'\]"):
        train(config, tmp_path / "run")
    config.frozen = ()
    with pytest.raises(UsageError, match=r"frozen \['image'\], not \[\]"):
        train(config, tmp_path / "run")
