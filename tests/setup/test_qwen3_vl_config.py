"""A folder of Qwen3-VL-Embedding: its arrays, its sizes, and its conversation."""

import functools
import json

import jax
import numpy as np
import pytest
import safetensors.numpy

import vlc_jax
from tests.support import small_models
from vlc_jax import models
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.setup import qwen3_vl_config, weights_config
from vlc_jax.weights import llava, rename

TEXT = {"model_type": "qwen3_vl_text", "vocab_size": 20, "hidden_size": 8, "head_dim": 4,
        "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2,
        "num_key_value_heads": 1, "rope_theta": 5e6, "rope_scaling": {
            "rope_type": "default", "mrope_section": [1, 1, 0],
            "mrope_interleaved": True}}  # fmt: skip
VISION = {"model_type": "qwen3_vl", "hidden_size": 16, "num_heads": 2, "intermediate_size": 12,
          "depth": 2, "out_hidden_size": 8, "num_position_embeddings": 9, "patch_size": 16,
          "deepstack_visual_indexes": [1]}  # fmt: skip
CONFIG = {"model_type": "qwen3_vl", "text_config": TEXT, "vision_config": VISION}
WORDS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>",
         "system", "user", "assistant", "Represent", "a", "dog", "?")  # fmt: skip


def write(folder, config=CONFIG, words=WORDS):
    (folder / "config.json").write_text(json.dumps(config))
    special = [word for word in words if word.startswith("<")]
    small_models.write_tokenizer(folder, words, "?", r"[^\s]+", special)
    return folder


def names_and_arrays(sizes, params):
    """The arrays of a file, by the names of Hugging Face: a frame of zeros, and one with all."""
    flat = rename.flatten(params)
    frame = flat.pop("image/patch_embedding/kernel").reshape(16, 16, 3, -1).transpose(3, 2, 0, 1)
    frames = np.ascontiguousarray(np.stack([0 * frame, frame], axis=2))
    yield "model.visual.patch_embed.proj.weight", frames
    for name, array in rename.saved(llava.rules(sizes, is_fused=False), flat):
        yield f"model.{name.replace('lm.', 'language_model.', 1)}", array


def write_weights(folder):
    """A folder with weights; its sizes, parameters and their shapes, and the arrays of its file."""
    sizes = llava.read_sizes(write(folder))
    config = weights_config.config_of_weights(folder, image_size=64)
    shapes = jax.eval_shape(functools.partial(_init, config), jax.random.key(0))
    shapes = {"image": shapes["image"], "lm": shapes["head"]["lm"]}
    params = small_models.normal(shapes)
    arrays = dict(names_and_arrays(sizes, params))
    head = {"lm_head.weight": np.ones((20, 8), np.float32)}  # the embedder has no logits
    safetensors.numpy.save_file(arrays | head, folder / "model.safetensors")
    return sizes, params, shapes, arrays


@pytest.mark.slow
def test_a_folder_is_read_and_scores_pictures_of_any_shape(tmp_path):
    sizes, expected, shapes, arrays = write_weights(tmp_path)
    file = tmp_path / "model.safetensors"
    found = llava.load(tmp_path, sizes, shapes)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    model = vlc_jax.load(tmp_path, image_size=96, context_length=6, batch_size=2)
    pictures = [np.full((*size, 3), 90, np.uint8) for size in ((40, 96), (96, 33), (64, 64))]
    images, texts = model.embed_images(pictures), model.embed_texts(["a dog", "a"])
    np.testing.assert_allclose(model.score(pictures, ["a dog", "a"]), images @ texts.T, atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), 1, atol=1e-5)
    with pytest.raises(UsageError, match="leaves in another space than its texts"):
        model.score(pictures, ["a dog"], segments="patches")
    more = {"model.visual.other.weight": np.ones(3, np.float32)}
    safetensors.numpy.save_file(arrays | more, file)
    with pytest.raises(WeightsError, match=r"visual\.other\.weight"):
        llava.load(tmp_path, sizes, shapes)
    del arrays["model.visual.deepstack_merger_list.0.norm.weight"]
    safetensors.numpy.save_file(arrays, file)
    with pytest.raises(WeightsError, match=r"deepstack_merger_list\.0\.norm\.weight"):
        llava.load(tmp_path, sizes, shapes)


def _init(config, key):
    head = {**config.model.head.to_dict(), "prefix": (), "suffix": ()}
    of_text = {"vocab_size": 20, "context_length": 6, "eos_id": 0}
    image = config.model.image.to_dict()
    options = {"head": head, "text_tower": False, "image_size": 64, "image": image, **of_text}
    return models.init(models.build("qwen3_vl", "Qwen3-VL-2B", **options), key)


def test_a_folder_sets_sizes_pixels_and_the_conversation(tmp_path):
    config = weights_config.config_of_weights(write(tmp_path))
    assert config.model.image.to_dict() == {
        "width": 16, "depth": 2, "heads": 2, "mlp_width": 12, "out_width": 8, "deepstack": (1,),
        "position_grid": 3,
    }  # fmt: skip
    decoder = config.model.head.decoder
    assert (decoder.sections, decoder.theta, decoder.qk_norm) == ((1, 1, 0), 5e6, True)
    assert (config.input.crop, config.input.image_size) == ("native", 1360)
    assert config.model.head.marks == (3, 4)
    assert config.model.head.suffix == "<|im_end|>\n<|im_start|>assistant\n"
    for given, system in (
        (None, "Represent the user's input."),
        (" Find it ", "Find it."),
        ("What is it?", "What is it?"),
    ):
        config = weights_config.config_of_weights(tmp_path, instruction=given)
        expected = f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n"
        assert config.model.head.prefix == expected


@pytest.mark.parametrize(
    ("part", "key", "value", "message"),
    [
        ("vision_config", "num_position_embeddings", 8, "is 8; only a square"),
        ("vision_config", "deepstack_visual_indexes", [1, 0], "ascending blocks of 2"),
        ("vision_config", "out_hidden_size", 9, "width of the decoder, 8"),
        ("text_config", "rope_scaling", {"mrope_section": [2, 1, 0]}, "half of head_dim, 2"),
        ("text_config", "rope_scaling", {"mrope_interleaved": False}, "mrope_interleaved is False"),
    ],
)
def test_other_architectures_are_refused(tmp_path, part, key, value, message):
    write(tmp_path, {**CONFIG, part: {**CONFIG[part], key: value}})
    with pytest.raises(WeightsError, match=message):
        qwen3_vl_config.config_of_qwen3_vl(tmp_path)


@pytest.mark.parametrize("given", [{"family": "clip"}, {"variant": "B/32"}, {"activation": "gelu"}])
def test_options_that_its_config_determines_are_refused(tmp_path, given):
    write(tmp_path)
    with pytest.raises(UsageError, match=f"determines {next(iter(given))}: leave"):
        weights_config.config_of_weights(tmp_path, **given)
    assert weights_config.config_of_weights(tmp_path, family="qwen3_vl").model.name == "qwen3_vl"


def test_other_tokenizers_pixels_and_instructions_are_refused(tmp_path):
    write(tmp_path, words=WORDS[:3])
    with pytest.raises(UsageError, match=r"no token '<\|vision_start\|>': name Qwen's"):
        qwen3_vl_config.config_of_qwen3_vl(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_std": [0.3, 0.3, 0.3]}))
    with pytest.raises(WeightsError, match=r"image_std is \[0.3, 0.3, 0.3\]; only 0.5"):
        qwen3_vl_config.config_of_qwen3_vl(tmp_path)
    with pytest.raises(UsageError, match="instruction is of Qwen3-VL-Embedding"):
        weights_config.config_of_weights(tmp_path / "other", instruction="Find it.")
