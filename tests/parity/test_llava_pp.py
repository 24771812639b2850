"""LLaMA-3-V and Phi-3-V (LLaVA-pp) from their folders: picture and text in, torch's numbers out."""

import json

import numpy as np
import pytest

import vlc_jax
from tests.support import llava_folder

pytestmark = pytest.mark.slow

CAPTIONS = ["a red circle on the left", "a blue square"]


@pytest.mark.parametrize("name", ["llama_3_v", "phi_3_v"])
def test_vqascores_and_answers_are_those_of_torch(there, tmp_path, name):
    pictures = llava_folder.pictures(3, side=28)
    np.save(tmp_path / "pictures.npy", np.stack(pictures))
    texts = {"captions": CAPTIONS, "question": "Is the circle on the left or on the right?"}
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    folder = tmp_path / "model"
    there("llava_pp.py", name, folder, tmp_path / "pictures.npy", tmp_path / "texts.json")
    found = json.loads((folder / "found.json").read_text())

    model = vlc_jax.load(folder)
    scores = model.score(pictures, CAPTIONS)
    np.testing.assert_allclose(scores, found["scores"], atol=5e-5)
    assert np.ptp(scores, axis=0).min() > 0.01  # it sees the picture
    assert np.ptp(scores, axis=1).min() > 0.01  # and reads the caption
    answers = model.answers(pictures, [texts["question"]] * 3, max_tokens=12)
    assert answers == found["answers"]
    assert len(" ".join(answers).split()) > 6
