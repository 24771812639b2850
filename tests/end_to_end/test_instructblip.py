"""A folder of InstructBLIP: what its config says, and its results by the protocols of LLaVA."""

import json

import numpy as np
import pytest

import vlc_jax
from tests.support import instructblip, llava_folder
from vlc_jax.configs.eval import llava
from vlc_jax.errors import UsageError
from vlc_jax.setup import llava_config, plan_search

QUESTION = "is the red on or under the blue"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("instructblip")
    instructblip.write(path, scale=0.6)
    return path


def test_the_config_is_that_of_the_folder(folder, tmp_path):
    config = llava_config.config_of_llava(folder)
    options = config.text.tokenizer_options
    assert (config.model.name, config.text.tokenizer) == ("instructblip", "instruction")
    assert options.template == "{question}"
    assert options.start_token == "</s>"  # declared, before "<s>" of the vocabulary
    assert config.text.context_length == 2 * instructblip.QFORMER["positions"]
    pixels = config.input
    assert (pixels.crop, pixels.interpolation) == ("none", "bicubic")
    assert pixels.normalisation == "clip"
    for name in ("config.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((folder / name).read_bytes())
    with pytest.raises(UsageError, match=r"no tokenizer\.json of the Q-Former in .*qformer_tok"):
        llava_config.config_of_llava(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps(instructblip.PUBLISHED))
    assert llava_config.is_llava(tmp_path)


def test_a_plan_has_the_pixels_and_the_texts_of_the_folder(folder):
    config = llava.get_config(f"path={folder},root={folder},sets=whatsup_a_two_way")
    with config.unlocked():
        config.batch_size = config.eval.batch_size = 8
    batch = next(plan_search.planned(config, is_scored=True)).batch
    side, length = instructblip.IMAGE["image_size"], 2 * instructblip.QFORMER["positions"]
    assert batch["image"].shape == (8, side, side, 3)
    assert batch["text"].shape == batch["text_marks"].shape == (8, length)


@pytest.mark.slow
def test_protocols_of_llava_ask_it_and_say_how(folder, tmp_path):
    protocols = "vqascore+keywords+letters"
    sets = "whatsup_a_two_way+mmvp"
    _, found, _ = llava_folder.evaluated(folder, tmp_path, protocols, sets)
    assert {*found} == {
        *("whatsup_a_two_way_vqascore", "mmvp_vqascore"),
        *("whatsup_a_two_way_keywords", "mmvp_letters"),
    }
    for result, rows in found.values():
        assert rows
        assert result["details"]["prompt"]["template"] == "<image>{question}"
    scores = [np.ravel(row["scores"]) for row in found["whatsup_a_two_way_vqascore"][1]]
    assert np.ptp(scores) > 1e-3


@pytest.mark.slow
def test_an_answer_depends_on_its_own_image_and_question_alone(folder):
    model, images = vlc_jax.load(folder, batch_size=4), llava_folder.pictures(3)
    questions = [QUESTION, "show the circle", QUESTION]
    found = model.answers(images, questions, max_tokens=5)
    assert len({*found}) > 1
    assert model.answers(images[1:2], questions[1:2], max_tokens=5) == found[1:2]
    strong = {"kind": "m3id", "alpha": 1.0, "decay": 3.0}
    assert model.answers(images[:1], [QUESTION], **strong, max_tokens=5) != found[:1]
