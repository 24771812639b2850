"""PaliGemma and Gemma 3 as models that score: `vlc_jax.load` and VQAScore."""

import functools
import json

import jax
import numpy as np
import pytest
from scipy import special

import vlc_jax
from tests.support import paligemma, plain_llava, small_models
from tests.support.llava_folder import pictures
from tests.support.marks import slow_but
from tests.support.small_models import GEMMA, GEMMA3, LM, SIGLIP, write_tokenizer
from vlc_jax import errors
from vlc_jax.setup import llava_config
from vlc_jax.weights import llava as weights

SPECIAL = ("<pad>", "<eos>", "<bos>", "<start_of_turn>", "<end_of_turn>", "<start_of_image>",
           "<end_of_image>")  # fmt: skip
WORDS = (*SPECIAL, "user", "model", "Yes", "\n", "\n\n", "\n\n\n", "<s>", "Does", "this", "figure",
         "show", '"a', "red", "blue", 'circle"?', "Please", "answer", "yes", "or",
         "no.")  # fmt: skip
FIELDS = {"vocab": len(WORDS), "depth": 2, "kv_heads": 1, "epsilon": 1e-6}
LOCAL = {"window": 3, "local_theta": 1e4, "scale_width": None}
IMAGE = SIGLIP | {"depth": 2, "image_size": 16}
TOWER = {"image": IMAGE, "layer": -1, "image_id": len(WORDS), "select": "patch"}
SIZES = {
    "paligemma": {"family": "gemma", "lm": LM | GEMMA | FIELDS, "kind": "paligemma", **TOWER},
    "gemma3": {
        "family": "gemma3_text",
        "lm": LM | GEMMA3 | FIELDS | LOCAL,
        "kind": "gemma3",
        "side": 2,
        **TOWER,
    },
}
TURN = "<end_of_turn> \n <start_of_turn> model \n"
# What stands before and behind the image, up to the answer, and the token that ends the answer.
PROMPTS = {
    "paligemma": ("", "<bos> {} \n", "<eos>"),
    "gemma3": (
        "<bos> <start_of_turn> user \n\n\n <start_of_image>",
        f"<end_of_image> \n\n {{}} {TURN}",
        "<end_of_turn>",
    ),
}
CAPTIONS = ["a red circle", "a blue circle"]


@pytest.fixture(scope="module", params=slow_but(("paligemma",), SIZES))
def folder(request, tmp_path_factory):
    """The kind of a model, its folder as `weights.save` writes it, and a function of its logits."""
    kind, path = request.param, tmp_path_factory.mktemp(request.param)
    model = plain_llava.build(SIZES[kind])
    params = small_models.drawn(functools.partial(plain_llava.init, model), scale=0.3, seed=4)
    # small, or tied embeddings make every token likeliest behind itself
    params["lm"]["token_embedding"]["embedding"] *= 0.2
    weights.save(params, SIZES[kind], path)
    if kind == "paligemma":
        np.savez(path / "pt.npz", **paligemma.arrays(params, SIZES[kind]))
    write_tokenizer(path, WORDS, "<pad>", r"\n+|[^\s]+", special=SPECIAL)
    apply = functools.partial(model.apply, {"params": params}, method="text_logits")
    return kind, path, jax.jit(apply), model.num_image_tokens


def ids_of(words):
    return [WORDS.index(word) for word in words.split(" ") if word]


def test_a_folder_scores_by_vqascore(folder):
    kind, path, logits_of, count = folder
    before, behind, end = PROMPTS[kind]
    images = pictures(2, 16)
    found = vlc_jax.load(path).score(images, CAPTIONS)
    expected = np.zeros((2, 2))
    for i, image in enumerate(images):
        pixels = np.float32(image[None] / 127.5 - 1)
        for j, caption in enumerate(CAPTIONS):
            asked = behind.format(f'Does this figure show "{caption}"? Please answer yes or no.')
            ids = [*ids_of(before), *[len(WORDS)] * count, *ids_of(asked), *ids_of(f"Yes {end}")]
            is_answer = np.arange(len(ids))[None] >= len(ids) - 2
            valid = np.ones((1, len(ids)), bool)
            logits = logits_of(pixels, np.array([ids]), valid, is_answer)
            log_p = special.log_softmax(np.asarray(logits)[0], axis=-1)
            expected[i, j] = (log_p[-3, ids[-2]] + log_p[-2, ids[-1]]) / 2
    assert np.ptp(expected) > 0.003
    np.testing.assert_allclose(found, expected, atol=2e-5)
    if kind == "paligemma":
        same = vlc_jax.load(path / "pt.npz").score(images, CAPTIONS)
        np.testing.assert_allclose(same, found, atol=1e-6)


def test_answers_are_the_likeliest_tokens(folder):
    """Against the whole text at every step: no cache, and no padding behind the question."""
    kind, path, logits_of, count = folder
    before, behind, end = PROMPTS[kind]
    question, steps = "Please answer red or blue", 4
    images = pictures(2, 16)
    found = vlc_jax.load(path).answers(images, [question] * 2, max_tokens=steps)
    prompt = [*ids_of(before), *[len(WORDS)] * count, *ids_of(behind.format(question))]
    slot = np.arange(len(prompt) + steps)[None]
    for image, answer in zip(images, found, strict=True):
        pixels, ids = np.float32(image[None] / 127.5 - 1), list(prompt)
        for _ in range(steps):
            row = np.array([ids + [0] * (slot.shape[1] - len(ids))])
            logits = logits_of(pixels, row, slot < len(ids), slot >= len(prompt))
            ids.append(int(np.asarray(logits)[0, len(ids) - 1].argmax()))
            if ids[-1] == WORDS.index(end):
                break
        words = [WORDS[i] for i in ids[len(prompt) :] if WORDS[i] not in SPECIAL]
        assert answer.split() == " ".join(words).split()
    assert found[0] != found[1]


def test_images_are_squashed_as_the_files_say(folder, tmp_path):
    kind, path, _, _ = folder
    config = llava_config.config_of_llava(path)
    assert (config.input.crop, config.input.normalisation) == ("none", "siglip")
    usual = {"paligemma": "bicubic", "gemma3": "bilinear"}[kind]
    assert config.input.interpolation == usual
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((path / name).read_bytes())
    file = tmp_path / "preprocessor_config.json"
    file.write_text(json.dumps({"resample": {"bicubic": 2, "bilinear": 3}[usual]}))
    assert llava_config.config_of_llava(tmp_path).input.interpolation != usual
    file.write_text(json.dumps({"image_mean": [0.48, 0.45, 0.4]}))
    with pytest.raises(
        errors.UsageError, match=r"have mean \(0\.48, .*; only those of clip, siglip"
    ):
        llava_config.config_of_llava(tmp_path)
