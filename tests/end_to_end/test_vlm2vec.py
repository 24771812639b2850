"""A captioner becomes an embedder: trained, evaluated and loaded with a question at every image."""

import importlib
import json

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict
from PIL import Image

import vlc_jax
from tests.setup import test_qwen3_vl_config as of_qwen
from tests.support import helpers, miniature
from tests.support.configs import shrink
from tests.support.training import train
from vlc_jax.configs import default
from vlc_jax.configs.common import pretrained
from vlc_jax.configs.llava import vlm2vec as qwen3_vl
from vlc_jax.encode import inference
from vlc_jax.input_pipeline.benchmarks import READERS
from vlc_jax.input_pipeline.record import DataError, ImageQuestion
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import init_from, resolve, weights_config
from vlc_jax.train import first_state

EVALS = {"scenes_relation_swap": {"split": "validation", "count": 8}}
EVALS["scenes_whatsup"] = EVALS["scenes_relation_swap"]


def configured(name, folder, arguments="", start=None):
    get_config = importlib.import_module(f"vlc_jax.configs.scenes.{name}").get_config
    config = shrink(get_config(arguments), folder)
    with config.unlocked():
        config.init_from, config.pretrain = str(start) if start else None, ConfigDict()
        config.evals = EVALS if name == "vlm2vec" else {}
        config.log_every = 1
    return config


@pytest.fixture(scope="module")
def captioner(tmp_path_factory):
    """The workdir of an untrained captioner, and the sizes of its decoder."""
    folder = tmp_path_factory.mktemp("vlm2vec")
    small = "width=16,depth=1"
    unlocked = f"{small},image_tower=unlocked,text_tower=unlocked"
    config = configured("captioner", folder, unlocked)
    setup, workdir = resolve(config), Workdir(folder / "captioner")
    workdir.claim(setup.config)
    frozen, _ = init_from.load_frozen(setup)
    state, checkpoints = first_state.restore_or_init(setup, workdir, frozen)
    checkpoints.save(1, state._replace(step=state.step + 1))
    checkpoints.wait()
    workdir.close()
    return workdir.path, small


@pytest.mark.slow
def test_the_decoder_of_a_captioner_is_trained_on_and_asked(captioner, tmp_path):
    start, small = captioner
    config = configured("vlm2vec", tmp_path, f"{small},train=dora", start)
    config.microbatch = 8
    setup = resolve(config, "train")
    before = init_from.load_latest(resolve(config, "eval"), tmp_path).params
    theirs = vlc_jax.load(start)._variables["params"]
    jax.tree.map(np.testing.assert_array_equal, before["head"], theirs["head"])
    np.testing.assert_allclose(np.exp(before["logit_scale"]), 50.0, rtol=1e-6)
    trained = setup.parameters.trained_shapes()
    assert set(trained) == {"lora"}

    workdir = train(config, tmp_path / "run")
    rows = helpers.rows(workdir / "metrics.jsonl")
    assert all(row["train/infonce"] > 0 and row["train/grad_norm"] > 0 for row in rows)
    model = vlc_jax.load(workdir)
    cases = READERS["scenes_relation_swap"](**EVALS["scenes_relation_swap"]).cases
    images = [ImageQuestion(case.images[0], case.meta["question"]) for case in cases]
    images[1] = ImageQuestion(cases[0].images[0], images[1].question)
    embeddings = model.embed_images(images)
    assert embeddings.shape == (8, 16)
    assert np.abs(embeddings[1] - embeddings[0]).max() > 1e-4
    texts = model.embed_texts([text for case in cases for text in case.captions])
    scores = np.einsum("ie,ioe->io", embeddings, texts.reshape(8, 2, 16))
    lines = (workdir / "evals/scenes_relation_swap/2.scores.jsonl").read_text().splitlines()
    for number in (0, *range(2, 8)):  # of each case with its own question
        found = json.loads(lines[number])["scores"]
        np.testing.assert_allclose(found, scores[number], atol=1e-5)
    pairs = json.loads((workdir / "evals/scenes_whatsup/2.json").read_text())
    assert pairs["version"].endswith("/asked")
    assert pairs["metrics"]["pair_accuracy"]["count"] == 8
    with pytest.raises(DataError, match="no question to fill into"):
        model.embed_images([cases[0].images[0]])
    # who takes the model takes what it is asked
    other = default.get_config()
    other.model.name, other.init_from = "init_from", str(workdir)
    assert weights_config.completed(other).input.question == "{}"
    with other.unlocked():
        pretrained.start_from(other, str(workdir))
    assert other.input.question == "{}"


@pytest.mark.slow
def test_without_a_template_questions_are_not_read(tmp_path):
    config = configured("vlm2vec", tmp_path, "width=16,depth=1,question=0", "captioner")
    setup = resolve(config, "eval")
    variables = {"params": setup.parameters.init(), "batch_stats": {}}
    model = inference.Model(setup, variables, batch_size=2)
    image = READERS["scenes_whatsup"](count=1).cases[0].images[0]
    plain, asked = model.embed_images([image, ImageQuestion(image, "what is there")])
    np.testing.assert_array_equal(plain, asked)


@pytest.mark.slow
def test_qwen3_vl_is_trained_on_any_shape_and_on_texts_alone(tmp_path):
    of_qwen.write_weights(tmp_path)
    rng, talks = np.random.default_rng(0), []
    for number in range(16):
        row, question = {"id": str(number)}, "a dog ?"
        if number % 4:  # the others have no image
            name, shape = f"{number}.jpg", ((40, 96), (96, 33), (64, 64))[number % 3]
            Image.fromarray(rng.integers(0, 256, (*shape, 3), np.uint8)).save(tmp_path / name)
            row, question = row | {"image": name}, f"<image>\n{question}"
        talks.append(row | {"conversations": miniature.talk(question, "a dog" + number % 8 * " a")})
    (tmp_path / "talks.json").write_text(json.dumps(talks))
    given = f"model=qwen3_vl,weights={tmp_path},path={tmp_path / 'talks.json'}"
    given += f",image_folder={tmp_path},batch=16,microbatch=8,size=96"
    config, sizes = qwen3_vl.get_config(given), weights_config.config_of_weights(tmp_path)
    with config.unlocked():
        config.model.image, config.model.vocab_size = sizes.model.image, 20
        config.model.head = {**config.model.head, **sizes.model.head}
        config.lora.rank, config.text.lengths, config.text.context_length = 2, (), 16
        config.update({"steps": 2, "log_every": 1, "evals": {}})
        config.optimizer.update({"learning_rate": 1e-2, "warmup_steps": 1})
    workdir = train(config, tmp_path / "run")
    first, second = (row["train/infonce"] for row in helpers.rows(workdir / "metrics.jsonl"))
    assert first != second
    trained = json.loads((workdir / "env.json").read_text())["parameters"]["trained"]
    assert 0 < trained < 400  # adapters alone
    images = [ImageQuestion(tmp_path / "1.jpg", text) for text in ("a dog ?", "a")]
    found = vlc_jax.load(workdir).embed_images(images)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert np.abs(found[0] - found[1]).max() > 1e-4
