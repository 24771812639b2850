"""X-VLM finetuned on LLaVA's conversations, and resumed."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

from tests.setup.test_blip_config import IDS, WORDS, xvlm_arrays
from tests.support import helpers, miniature, small_models
from tests.support.runs import saved_params
from tests.support.training import train
from vlc_jax.configs import xvlm_ft

ENCODER = {"width": 64, "depth": 2, "heads": 1, "mlp_width": 20, "positions": 40}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    """The recipe with a tiny model; of eight entries two have the same image."""
    folder = tmp_path_factory.mktemp("xvlm")
    small_models.write_tokenizer(folder, WORDS, "[UNK]")
    np.savez(folder / "xvlm.npz", **xvlm_arrays((1, 1, 1, 1), **ENCODER))
    rng, talks = np.random.default_rng(0), []
    for number in range(8):
        name, text = f"{number % 7}.png", " ".join(rng.choice(WORDS[4:], 4))
        Image.fromarray(rng.integers(0, 256, (40, 30, 3), np.uint8)).save(folder / name)
        talks.append({"id": 0, "image": name, "conversations": miniature.talk("<image>", text)})
    (folder / "talks.json").write_text(json.dumps(talks))
    config = xvlm_ft.get_config(
        f"data=llava,weights={folder / 'xvlm.npz'},tokenizer={folder},path={folder / 'talks.json'},"
        "batch=8,size=64"
    )
    with config.unlocked():
        config.update_from_flattened_dict({"steps": 3, "epochs": None, "log_every": 1})
        config.update_from_flattened_dict({"checkpoint.every": 2, "optimizer.warmup_steps": 1})
        config.model.remat = "none"  # compiles faster
        config.model.vocab_size, config.text.context_length = IDS["vocab_size"], 6
        config.model.image.update({"width": 8, "stages": (1, 1, 1, 1), "heads": 2})
        config.model.head = {"encoder": ENCODER, "projection": 6}
    return config


def test_a_resumed_run_draws_the_pairs_of_an_unbroken_one(config, tmp_path):
    workdir = train(config, tmp_path / "run")
    rows = helpers.rows(workdir / "metrics.jsonl")
    again = shutil.copytree(workdir, tmp_path / "again")
    shutil.rmtree(again / "checkpoints/3")  # as if it had died after step 2
    (again / "DONE").unlink()
    found = helpers.rows(train(config, again) / "metrics.jsonl")
    assert found[-1]["step"] == rows[-1]["step"] == 3
    for name in ("loss", "itc", "itm"):
        values = [row[f"train/{name}"] for row in rows]
        assert found[-1][f"train/{name}"] == values[-1]
        assert min(values) > 0.1
        assert len({*values}) == 3
    of_all, of_parts = saved_params(workdir, 3), saved_params(again, 3)
    assert {*of_all} >= {"head/match/down/kernel", "logit_scale"}
    assert not [name for name in of_all if name.startswith("image/")]  # frozen
    for path, array in of_all.items():
        np.testing.assert_array_equal(array, of_parts[path])
