"""A LLaVA by transformers: imported, evaluated by every protocol, trained, exported, loaded."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import vlc_jax
from tests.support import llava_folder, plain_llava
from vlc_jax.evaluators import prompts
from vlc_jax.input_pipeline.record import Conversation
from vlc_jax.tools import export
from vlc_jax.weights import llava as weights

pytestmark = pytest.mark.slow

PROTOCOLS = "vqascore+vqascore_no_end+keywords+letters+options+written+m3id"
CAPTION = "red circle on the blue"


def test_transformers_loads_what_was_trained_from_its_folder(there, tmp_path):
    folder = tmp_path / "llava"
    there("llava_chain.py", "write", folder)
    llava_folder.write_tokenizer(folder)
    _, results, _ = llava_folder.evaluated(folder, tmp_path, PROTOCOLS, "whatsup_a_two_way+mmvp")
    assert {name.split("_two_way_")[-1] for name in results if "whatsup" in name} == {
        *("vqascore", "vqascore_no_end", "keywords", "m3id_t0", "m3id_t1")
    }
    workdir = llava_folder.trained(folder, tmp_path / "data", "Is the red on the blue")
    exported = tmp_path / "exported"
    export.export(workdir, "llava", exported)

    place = {word: i for i, word in enumerate(llava_folder.WORDS)}
    image_id = weights.read_sizes(folder)["image_id"]
    question = prompts.VQASCORE.replace("{}", CAPTION)
    words = ["\n", *question.split(), "ASSISTANT:", "Yes", "</s>"]
    ids = [place["<s>"], place["USER:"], *[image_id] * 16, *(place.get(w, 0) for w in words)]
    model, pictures = vlc_jax.load(workdir), llava_folder.pictures(2, side=28)
    images = np.asarray(model._setup.normalise(jax.device_put(np.stack(pictures))))
    np.savez(tmp_path / "io.npz", ids=np.array([ids, ids]), images=images)
    there("llava_chain.py", "logits", tmp_path / "io.npz", exported, tmp_path / "logits.npy")
    theirs = np.load(tmp_path / "logits.npy")

    sizes = weights.read_sizes(exported)
    again = plain_llava.build(sizes)
    shapes = jax.eval_shape(functools.partial(plain_llava.init, again), jax.random.key(0))
    params = weights.load(exported, sizes, shapes)
    valid = jnp.ones((2, len(ids)), bool)
    apply = jax.jit(functools.partial(again.apply, method="text_logits"))
    ours = apply({"params": params}, images, np.array([ids, ids]), valid)
    np.testing.assert_allclose(ours, theirs, atol=5e-5)
    assert np.abs(theirs).max() > 2

    # VQAScore is the loss of transformers on "Yes" and the end token, or on "Yes" alone
    log_p = np.asarray(jax.nn.log_softmax(theirs))
    yes, end = log_p[:, -3, place["Yes"]], log_p[:, -2, place["</s>"]]
    np.testing.assert_allclose(model.score(pictures, [CAPTION])[:, 0], (yes + end) / 2, atol=2e-5)
    alone = model.score(pictures, [Conversation.scored(question, "Yes", marks_end=False)])[:, 0]
    np.testing.assert_allclose(np.exp(alone), np.exp(yes), rtol=1e-4)
