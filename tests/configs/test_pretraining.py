"""Pretraining configs: published schedules, and one of them on prepared shards."""

import importlib

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from tests.support import helpers, recipes
from vlc_jax import models
from vlc_jax.input_pipeline.commands import prepare
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import optimizer, resolve
from vlc_jax.setup.model import learning_rate
from vlc_jax.train import loop


def pretrain(name: str, argument: str | None = None) -> ConfigDict:
    return importlib.import_module(f"vlc_jax.configs.pretrain.{name}").get_config(argument)


@pytest.mark.parametrize(
    ("name", "variant", "peak", "warmup"),  # tests/models/test_variants.py counts parameters
    [
        ("clip_b32", "B/32", 5e-4, 2000),
        ("clip_b16", "B/16", 5e-4, 2000),
        ("clip_l14", "L/14", 4e-4, 2000),
        ("siglip_b16", "SigLIP-B/16", 1e-3, 6103),  # 200 million examples
        ("siglip_l16_384", "SigLIP-L/16-256", 1e-5, 6103),
    ],
)
def test_rates_rise_to_their_peak_and_fall_to_zero(name, variant, peak, warmup):
    config, steps = pretrain(name), 100_000
    rates = jax.jit(jax.vmap(learning_rate(config, steps)))
    found = rates(np.array([0, warmup - 1, (steps + warmup) // 2, steps]))
    assert found == pytest.approx([peak / warmup, peak, peak / 2, 0.0], rel=1e-3, abs=1e-12)
    assert (config.model.variant, config.batch_size) == (variant, 32_768)
    assert {loss.implementation for loss in config.losses.values()} == {"ring"}


def test_clip_has_the_hyper_parameters_of_its_paper():
    config = pretrain("clip_b32")
    c = config.optimizer
    assert (c.weight_decay, c.b1, c.b2, c.eps, c.clip_norm) == (0.2, 0.9, 0.98, 1e-6, None)
    assert (config.epochs, config.text.context_length) == (32.0, 77)
    assert c.spike_guard == (10.0, 10)
    assert config.model.logit_scale_max == 100.0
    assert [pretrain(name).model.remat for name in ("clip_b32", "clip_l14")] == ["none", "block"]


def test_siglip_decays_its_kernels_alone_by_the_rate_of_its_paper():
    config = pretrain("siglip_b16")
    model = models.build("clip", config.model.variant, image_size=224, context_length=16)
    shapes = jax.eval_shape(lambda key: models.init(model, key), jax.random.key(0))
    decays = optimizer.decay_mask(shapes, config.optimizer.decay_exclude)
    names = optimizer.path_names(shapes)
    for name, is_decayed in zip(jax.tree.leaves(names), jax.tree.leaves(decays), strict=True):
        assert is_decayed == name.endswith("kernel"), name
    c = config.optimizer
    assert c.weight_decay * c.learning_rate == pytest.approx(1e-4)  # of a parameter, at the peak
    assert (c.b2, c.clip_norm) == (0.95, 1.0)


def test_the_last_part_of_siglip_starts_from_weights_where_there_are_some():
    config = pretrain("siglip_l16_384")
    assert (config.pretrain.input.image_size, config.input.image_size) == (256, 384)
    assert (config.pretrain.examples, config.examples) == (40_000_000_000, 5_000_000_000)
    assert (config.pretrain.optimizer.weight_decay, config.optimizer.weight_decay) == (0.1, 0.0)
    given = pretrain("siglip_l16_384", "weights=runs/siglip_l16_256")
    assert (given.init_from, given.pretrain.to_dict()) == ("runs/siglip_l16_256", {})


def test_validation_and_imagenet_are_evaluated_where_they_are_given(tmp_path):
    assert not pretrain("clip_b32").evals
    config = pretrain("clip_b32", f"path={tmp_path},validation=pairs.jsonl,imagenet=imagenet")
    assert config.input.source == "shards"
    assert config.evals.retrieval.path == "pairs.jsonl"
    zeroshot = config.evals.zeroshot
    assert (zeroshot.source, zeroshot.path, zeroshot.split) == ("class_folders", "imagenet", "val")
    assert zeroshot.class_names == "imagenet/en_classnames.json:imagenet1k"


@pytest.mark.slow
def test_siglip_goes_on_at_another_resolution_on_prepared_shards(tmp_path):
    shards, weights = tmp_path / "shards", tmp_path / "siglip"
    options = ("--option", "count=32", "--size", "64", "--shard-size", "16")
    assert prepare.main(["--source", "scenes", *options, "--out", str(shards)]) == 0
    fields = recipes.write_siglip(weights)[1]["fields"]  # of 64 pixels
    config = pretrain("siglip_l16_384", f"path={shards},weights={weights},batch=16")
    with config.unlocked():
        small = recipes.SMALL
        config.model.image, config.model.text = dict(small), {**small, "projection": 16}
        config.update_from_flattened_dict(fields)
        config.examples, config.optimizer.warmup_steps = 3 * config.batch_size, 1
        config.input.image_size, config.input.preview, config.log_every = 48, 4, 3
        config.model.remat = "none"  # compiles faster
    workdir = Workdir(tmp_path / "run")
    try:
        loop.train(resolve(config), workdir, StopSignal(), allow_change=False)
    finally:
        workdir.close()
    assert (workdir.path / "DONE").exists()
    (row,) = helpers.rows(workdir.path / "metrics.jsonl")
    assert row["step"] == 3
    assert np.isfinite(row["train/sigmoid"])
