"""A folder of Otter as a model that scores and answers, and the files of OpenFlamingo beside it."""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy
from scipy import special

import vlc_jax
from tests.support import flamingo_folder
from tests.support.flamingo_folder import small  # noqa: F401 -- a fixture
from tests.support.llava_folder import pictures
from vlc_jax import errors, types
from vlc_jax.models import flamingo
from vlc_jax.setup import llava_config
from vlc_jax.weights import llava as weights

CAPTIONS, END, IMAGE, ANSWER = ["a red circle", "a blue circle"], 24, 25, 26


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder, its parts and their parameters."""
    path = tmp_path_factory.mktemp("otter")
    return path, *flamingo_folder.write(path)


@pytest.fixture(scope="module")
def model(folder):
    return vlc_jax.load(folder[0], batch_size=8)


@pytest.fixture(scope="module")
def logits_of(folder, model):
    """Logits after every token of a row of ids behind one image, written out."""
    (tower, resampler, decoder), params = folder[1:]

    @jax.jit
    def run(pixels, ids):
        tokens = tower.apply({"params": params["image"]}, pixels, types.FeatureRequest("raw"))
        latents = resampler.apply({"params": params["projector"]}, tokens.tokens[:, 1:])

        def logits(module):
            media = flamingo.Media(latents[:, None], jnp.cumsum(ids == IMAGE, axis=1))
            return module.logits(module(module.embed(ids), ids >= 0, media=media)[0])

        return decoder.apply({"params": params["lm"]}, method=logits)[0]

    return lambda image, ids: run(
        model._setup.normalise(jax.device_put(image[None])), np.array([ids])
    )


def ids_of(text):
    return [flamingo_folder.WORDS.index(word) for word in text.split()]


def test_a_folder_scores_by_vqascore_in_otters_prompt(model, logits_of):
    images = pictures(2)
    found = model.score(images, CAPTIONS)
    expected = np.zeros((2, 2))
    for j, caption in enumerate(CAPTIONS):
        asked = f'User: Does this figure show "{caption}"? Please answer yes or no. GPT:'
        ids = [IMAGE, *ids_of(asked), ANSWER, *ids_of("Yes"), END]
        for i, image in enumerate(images):
            log_p = special.log_softmax(np.asarray(logits_of(image, ids)), axis=-1)
            expected[i, j] = (log_p[-3, ids[-2]] + log_p[-2, ids[-1]]) / 2
    assert np.ptp(expected, axis=0).min() > 0.003  # the image is seen
    np.testing.assert_allclose(found, expected, atol=2e-5)


def test_answers_are_the_likeliest_tokens_and_are_streamed(model, logits_of):
    question, images = "Is the red on or under the blue", pictures(2)
    found = model.answers(images, [question, "Is the"], max_tokens=3)
    ids = [IMAGE, *ids_of(f"User: {question} GPT:"), ANSWER]
    answer = []
    for _ in range(3):
        # of one length: a causal decoder does not see the rest
        row = [*ids, *answer, *[0] * (3 - len(answer))]
        answer.append(int(logits_of(images[0], row)[len(ids) + len(answer) - 1].argmax()))
        if answer[-1] == END:
            break
    table = model._setup.tokenizer
    assert found[0] == table.decode([i for i in answer if i != END]).strip()
    assert "".join(model.stream(images[0], question, max_tokens=3)).strip() == found[0]
    strong = {"kind": "m3id", "alpha": 1.0, "decay": 3.0}
    assert model.answers(images[:1], [question], **strong, max_tokens=3) != found[:1]


def test_tokens_of_otter_are_added_in_the_order_of_its_code(folder):
    config = llava_config.config_of_llava(folder[0])
    assert config.model.head.prefix == (IMAGE,)
    assert (config.input.crop, config.input.image_size) == ("centre", 8)
    options = config.text.tokenizer_options
    assert (options.eos_token, options.pad_token) == ("<|endofchunk|>", "<PAD>")
    assert options.template == "User: {question} GPT:<answer>"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"text_config": {**flamingo_folder.TEXT, "model_type": "llama"}}, "is of 'llama'; only"),
        ({"text_config": {**flamingo_folder.TEXT, "no_bias": False}}, "no_bias is False"),
        ({"text_config": {**flamingo_folder.TEXT, "attn_config": {"qk_ln": True}}}, "qk_ln is T"),
        ({"cross_attn_every_n_layers": 5}, "is 1 to 4; got 5"),
        ({"max_num_frames": 8}, "max_num_frames is 8"),
    ],
)
def test_switches_of_config_that_we_do_not_have_are_refused(tmp_path, changes, message):
    flamingo_folder.write_config(tmp_path, **changes)
    with pytest.raises(errors.WeightsError, match=message):
        weights.read_sizes(tmp_path)


def test_names_left_over_or_missing_are_refused(folder, tmp_path):
    path, _, params = folder
    flamingo_folder.write_config(tmp_path)
    arrays = safetensors.numpy.load_file(path / "model.safetensors")
    gate = "lang_encoder.transformer.blocks.1.gated_cross_attn_layer.attn_gate"
    arrays["perceiver.frame_embs"] = arrays.pop(gate)
    safetensors.numpy.save_file(arrays, tmp_path / "model.safetensors")
    load = functools.partial(weights.load, tmp_path, weights.read_sizes(tmp_path))
    message = r"1 not in the file: lm\.cross\.1\.attn_gate; 1 in the .*: projector\.frame_embs"
    with pytest.raises(errors.WeightsError, match=message):
        load(jax.eval_shape(lambda: params))
    with pytest.raises(errors.WeightsError, match="are read, and not written"):
        weights.save(params, weights.read_sizes(path), tmp_path / "out")


def test_a_part_of_an_open_flamingo_that_is_missing_is_named(tmp_path):
    config = {"model_type": "open_flamingo", "lang_encoder_path": "some/mpt-7b"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    message = r"'some/mpt-7b' as lang_encoder_path; download that language model to .*mpt-7b"
    with pytest.raises(errors.WeightsError, match=message):
        weights.read_sizes(tmp_path)


def test_the_tokenizer_of_another_model_is_refused(tmp_path):
    text = {**flamingo_folder.TEXT, "vocab_size": 27}
    flamingo_folder.write_config(tmp_path, text_config=text)
    with pytest.raises(
        errors.UsageError, match=r"has 28 tokens with those that otter adds, and .*27"
    ):
        llava_config.config_of_llava(tmp_path)
