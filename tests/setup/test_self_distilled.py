"""Configs of the model self_distilled: where its parameters start, and views that cannot be."""

import json

import jax
import numpy as np
import pytest

from tests.support import small_models
from vlc_jax import models
from vlc_jax.configs import siglip2_dense
from vlc_jax.configs.scenes import siglip
from vlc_jax.errors import UsageError
from vlc_jax.setup import data, init_from, resolve

SMALL = {"depth": 1, "width": 16, "heads": 2}


def configured(config):
    with config.unlocked():
        config.pretrain, config.model.dtype = {}, "float32"
        config.model.image, config.model.text = {**SMALL, "stem": (4, 8, 16)}, dict(SMALL)
    return config


@pytest.mark.parametrize("is_back", [False, True])
def test_towers_scale_and_bias_are_those_of_a_siglip_and_back_without_the_head(
    tmp_path, monkeypatch, is_back
):
    configs = [configured(siglip.get_config()), configured(siglip2_dense.get_config())]
    theirs, ours = reversed(configs) if is_back else configs
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "config.json").write_text(json.dumps(theirs.to_dict()))
    params = small_models.normal(resolve(theirs, "eval").parameters.shapes)
    latest = init_from.Latest(params, 1, params, {})
    monkeypatch.setattr(init_from, "load_latest", lambda *_: latest)
    ours.init_from = str(tmp_path)
    setup = resolve(ours, "eval")
    found = init_from.load(setup, setup.parameters.shapes)
    shared = {name: part for name, part in params.items() if name != "head"}
    assert found.keys() == shared.keys() == {"image", "text", "logit_scale", "logit_bias"}
    jax.tree.map(np.testing.assert_array_equal, found, shared)
    if not is_back:  # for WiSE-FT, whose other weights lack the head
        complete = init_from.load_complete(setup)
        jax.tree.map(
            np.testing.assert_array_equal, {**complete, "head": {}}, {**shared, "head": {}}
        )
        assert jax.tree.map(np.shape, complete) == jax.tree.map(np.shape, setup.parameters.shapes)


def test_views_are_those_of_the_losses_and_crops_fit_the_patches():
    config = configured(siglip2_dense.get_config("crops=3,crop_size=24"))
    model = models.build("clip", "mini")
    views = data.views(config, model)
    assert (views.crops, views.patches, views.masked, views.transform.size) == (3, 25, 12, 24)
    assert views.transform.scale == (0.25, 0.6)
    without = siglip2_dense.get_config("self_distill=0")
    assert data.views(without, model).shapes == {"masked_patches": ((12,), "int32")}
    assert data.views(siglip.get_config(), model) is None
    for size in (20, 48):
        config.losses.self_distill["size"] = size
        with pytest.raises(UsageError, match=f"multiple of the patches' 8 .* 40, .* got {size}"):
            data.views(config, model)
    config.losses.self_distill["size"] = 24
    with pytest.raises(UsageError, match="with rope 0"):
        data.views(config, models.build("clip", "mini", image={"rope": "qk_2d"}))
    config.input.source = "features"
    with pytest.raises(UsageError, match="stored features lack: read the images"):
        data.views(config, model)
