"""The recipes of LLaVA's two stages at full size, by shape."""

import importlib

import jax
import pytest

from vlc_jax.setup import resolve

DECODERS = {  # parameters of the language model, its width, and of an adapter of rank 128
    "vicuna_7b": (6_738_415_616, 4096, 319_815_680),
    "llama3_8b": (8_030_261_248, 4096, 335_544_320),
    "phi3_mini": (3_821_079_552, 3072, 239_075_328),
}
IMAGE = 290_911_232  # ViT-L/14 at 336 pixels without its last block and its projection


def size(tree):
    return sum(leaf.size for leaf in jax.tree.leaves(tree))


def planned(stage, argument):
    config = importlib.import_module(f"configs.llava.{stage}").get_config(
        f"weights=x,tokenizer=y,{argument}"
    )
    return resolve(config, "plan", jax.devices()), config


@pytest.mark.parametrize("decoder", DECODERS)
def test_sizes_and_what_is_trained(decoder):
    expected, width, adapters = DECODERS[decoder]
    projector = (1024 + 1) * width + (width + 1) * width
    for stage in ("stage1", "stage2"):
        parameters = planned(stage, f"decoder={decoder}")[0].parameters
        head = parameters.shapes["head"]
        assert size(head["lm"]) == expected
        assert {leaf.dtype.name for leaf in jax.tree.leaves(head["projector"])} == {"float32"}
        assert size(parameters.shapes["image"]) == IMAGE
        assert size(parameters.shapes) == expected + projector + IMAGE + 1  # the logit scale
        own = adapters if stage == "stage2" else 0
        assert size(parameters.trained_shapes()) == projector + own
        share = parameters.trained_share("head")  # an adapter's products are computed in all passes
        assert share == pytest.approx((projector + 3 * own) / (expected + projector))
        assert parameters.frozen_towers()[0] == "image"


def test_the_class_token_alone_leaves_room_for_longer_texts():
    setup, config = planned("stage2", "select=cls")
    assert setup.model.head.select == "cls"
    assert config.text.context_length == 2047
    assert planned("stage2", "")[1].text.context_length == 2048 - 576


def test_an_unknown_decoder_or_selection_is_refused():
    with pytest.raises(ValueError, match="decoder is one of vicuna_7b, llama3_8b, phi3_mini"):
        planned("stage1", "decoder=vicuna_13b")
    with pytest.raises(ValueError, match="select is one of patch, cls, cls_patch; got 'pooled'"):
        planned("stage2", "select=pooled")
