"""SigLIP 2 NaFlex from a folder of Hugging Face: config, scores, finetuning, unfit crops."""

import functools
import json

import jax
import numpy as np
import pytest
from PIL import Image

import vlc_jax
from tests.support import helpers, small_models
from tests.support.training import train
from vlc_jax import errors, models, weights
from vlc_jax.configs import siglip_ft
from vlc_jax.models import variants
from vlc_jax.setup import resolve
from vlc_jax.setup.init_from import architecture
from vlc_jax.setup.weights_config import config_of_weights

SIZES = variants.Sizes("siglip_naflex", 24, 256, 16, (24, 2, 4), (24, 1, 2))
SHAPES = [(64, 64), (40, 160), (300, 30), (17, 23)]


@pytest.fixture
def folder(monkeypatch, tmp_path):
    monkeypatch.setattr(variants, "VARIANTS", {**variants.VARIANTS, "tiny": SIZES})
    words = ("<pad>", "<eos>", "a", "red", "cat", "unknown")
    small_models.write_tokenizer(tmp_path, words, "unknown")
    model = models.build("clip", "tiny", vocab_size=6, image={"position_grid": 4})
    fields = {"max_position_embeddings": 64, "vocab_size": 6}
    small_models.write_hugging_face(tmp_path, model, "hf_siglip2_naflex", 0.3, **fields)
    config = json.loads((tmp_path / "config.json").read_text()) | {"model_type": "siglip2"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    processor = {"image_processor_type": "Siglip2ImageProcessor", "max_num_patches": 16}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(processor))
    return tmp_path


def test_a_folder_sets_crop_patches_and_positions(folder):
    model = vlc_jax.load(folder, family="siglip2", batch_size=4)
    pixels, image = (model.config[part] for part in ("input", "model"))
    assert (pixels["crop"], pixels["eval_crop"], pixels["image_size"]) == ("naflex", "naflex", 64)
    assert (pixels["interpolation"], image["image"]["position_grid"]) == ("bilinear", 4)
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in SHAPES]
    texts = ["a red cat", "a"]
    scores = model.score(pictures, texts)
    assert np.isfinite(scores).all()
    np.testing.assert_array_equal(model.score([*model.preprocess(pictures)], texts), scores)
    Image.fromarray(pictures[1]).save(folder / "wide.png")
    found = model.score([folder / "wide.png"], texts)
    np.testing.assert_allclose(found[0], scores[1], atol=1e-6)
    turned = [np.ascontiguousarray(x.swapaxes(0, 1)) for x in pictures]
    assert np.abs(model.score(turned, texts) - scores)[1:3].max() > 1e-3


@pytest.mark.slow
def test_a_recipe_finetunes_on_pictures_of_any_shape(folder, monkeypatch):
    variant = "SigLIP2-B/16-naflex"
    monkeypatch.setitem(variants.VARIANTS, variant, SIZES)
    model = models.build("clip", variant, vocab_size=6, image={"position_grid": 4})
    shapes = jax.eval_shape(functools.partial(models.init, model), jax.random.key(0))
    params, _ = weights.load(folder, shapes, architecture(model))
    file, table = folder / "big_vision.npz", folder / "table.jsonl"
    np.savez(file, **weights.save(params, "big_vision_naflex", architecture(model)))
    rng, rows = np.random.default_rng(0), []
    for number in range(8):
        pixels = rng.integers(0, 256, (*SHAPES[number % 4], 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
        rows.append({"image": f"{number}.png", "caption": "a red cat" + number * " a"})
    helpers.write_rows(table, rows)
    losses = []
    for path in (folder, file):
        given = f"family=siglip2,variant={variant},size=64,image_tower=unlocked,batch=8"
        given += f",weights={path},tokenizer={folder},path={table}"
        given += f",validation={table}" if path == folder else ""
        config = siglip_ft.get_config(given)
        with config.unlocked():
            config.model.update({"vocab_size": 6, "activation": None})
            config.model.image.position_grid = 4
            config.update({"epochs": None, "steps": 2, "log_every": 1})
            config.optimizer.update({"warmup_steps": 1, "learning_rate": 1e-3})
        run = train(config, folder / f"run_{len(losses)}")
        losses.append([row["train/sigmoid"] for row in helpers.rows(run / "metrics.jsonl")])
    assert losses[0][1] < losses[0][0]
    assert losses[1] == losses[0]
    result = json.loads((folder / "run_0/evals/retrieval/2.json").read_text())
    assert result["metrics"]["image_to_text_r1"]["count"] == 8


def test_crops_of_squares_and_towers_of_squares_are_refused(folder):
    config = config_of_weights(folder, family="siglip2")
    config.input.eval_crop = "none"
    with pytest.raises(errors.UsageError, match="of any aspect ratio: set it to naflex"):
        resolve(config, "weights")
    config = config_of_weights(folder, family="siglip2")
    config.model.variant, config.model.image.position_grid = "SigLIP-B/16", None
    with pytest.raises(errors.UsageError, match="of one shape: it cannot be naflex"):
        resolve(config, "weights")
