"""Qwen3-VL-Embedding gives the numbers of transformers, from pictures and texts to embeddings."""

import numpy as np
import pytest

import vlc_jax
from vlc_jax.input_pipeline.record import ImageQuestion
from vlc_jax.setup import qwen3_vl_config

pytestmark = pytest.mark.slow

SCRIPT = "qwen3_vl_reference.py"
TOLERANCE = 2e-6  # of embeddings of unit length, float32
TEXTS = ("A red dog, 12 cats' tails.", " two  ducks\nüber Köln", "", "a")
QUESTIONS = ("What is left of it?", "Find a caption.")
PICTURES = ("wide", "tall", "tiny")  # of grids 6 x 10, 12 x 4 and 4 x 6


@pytest.fixture(scope="module")
def model(folder):
    sizes = {"image_size": 160, "context_length": 48, "batch_size": 4}
    return vlc_jax.load(folder / "model", **sizes)


def changed(loaded, **fields):
    """A model with other fields of its Setup, and the same parameters."""
    return type(loaded)(loaded._setup._replace(**fields), loaded._variables, 4)


def test_pixels_and_grids(model, folder, io):
    for name in PICTURES:
        mosaic = model.pixels(folder / f"{name}.png").astype(np.float32) / 127.5 - 1
        rows, columns = io[f"{name}/grid"]
        patches = mosaic[1:].reshape(10, 16, 10, 16, 3).swapaxes(1, 2).reshape(100, 256, 3)
        patches = patches[: rows * columns]
        blocks = patches.reshape(rows // 2, 2, columns // 2, 2, 256, 3).swapaxes(1, 2)
        # theirs: channel, frame, pixel
        theirs = io[f"{name}/pixels"].reshape(-1, 3, 2, 256)[:, :, 0].swapaxes(1, 2)
        np.testing.assert_allclose(blocks.reshape(theirs.shape), theirs, atol=1e-6)


def test_ids_of_conversations(model, io):
    head, tokenizer = model._setup.model.head, model.tokenizer
    # their code ends an instruction without a full stop with one
    other = tokenizer.before_image(qwen3_vl_config.before("Find it, please"))
    for text in TEXTS:
        ids = tokenizer([text])[0].tolist()
        ids = [*ids[: ids.index(tokenizer.eos_id)], *head.suffix]
        assert [*head.prefix, *ids] == io[f"ids/0/{text}"].tolist()
        assert [*other, *ids] == io[f"ids/1/{text}"].tolist()


def test_embeddings_of_pictures_of_three_shapes_and_of_texts(model, folder, io):
    images = model.embed_images([folder / f"{name}.png" for name in PICTURES])
    np.testing.assert_allclose(images, io["images"], atol=TOLERANCE)
    np.testing.assert_allclose(model.embed_texts(TEXTS), io["texts"], atol=TOLERANCE)


def test_embeddings_of_pictures_with_questions(model, folder, io):
    asked = changed(model, evaluation=model._setup.evaluation._replace(question="{}"))
    pairs = zip(PICTURES, QUESTIONS, strict=False)
    found = asked.embed_images([ImageQuestion(folder / f"{name}.png", q) for name, q in pairs])
    np.testing.assert_allclose(found, io["questions"], atol=TOLERANCE)
