"""Config validation: records of a step, steps of a run, functional words, hard texts."""

import json
import re

import jax
import jax.numpy as jnp
import pytest
from ml_collections import ConfigDict

import vlc_jax
from tests.support import small_models, tiny
from vlc_jax.configs import default
from vlc_jax.devices import runtime
from vlc_jax.errors import UsageError, WeightsError
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import addresses, data, duration, init_from, resolve


def configured(batch_size=12, hard_images=0, **length):
    config = default.get_config()
    config.batch_size, config.input.hard_images = batch_size, hard_images
    config.update({"steps": None, **length})
    return config


@pytest.mark.parametrize(
    ("hard_images", "length", "steps"),
    [
        (0, {"epochs": 2.0}, 20),
        (1, {"epochs": 2.0}, 40),
        (2, {"epochs": 1.0}, 30),
        (2, {"examples": 100}, 25),
        (2, {"steps": 7}, 7),
    ],
)
def test_epochs_and_examples_count_records_and_not_their_hard_images(hard_images, length, steps):
    assert duration.total_steps(configured(hard_images=hard_images, **length), records=120) == steps


def test_a_batch_holds_whole_groups():
    with pytest.raises(UsageError, match=r"batch_size=12 is not divisible by .* = 5"):
        duration.total_steps(configured(hard_images=4, steps=1), records=120)


@pytest.mark.parametrize(
    ("name", "words"), [("dcsm", ("left",)), ("clip", ("left",)), ("dcsm", ())]
)
def test_functional_words_without_a_vector_in_the_head_and_the_other_way_round_are_refused(
    name, words
):
    config = configured(batch_size=8)
    with config.unlocked():
        config.model.name, config.text.functional_words.words = name, words
    with pytest.raises(
        UsageError, match=rf"functional_words\.words are {len(words)}, the head {name} has"
    ):
        resolve(config)


def run_with_tokenizer(folder, name, **options):
    """The workdir of a run with that tokenizer, as far as its config."""
    config = default.get_config()
    with config.unlocked():
        config.text.tokenizer, config.text.tokenizer_options = name, options
    folder.mkdir()
    (folder / "env.json").write_text("{}")
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    return str(folder)


def test_a_workdir_is_a_source_of_its_own_tokenizer(tmp_path):
    small_models.write_tokenizer(tmp_path, ("[EOS]", "a", "red", "cat", "unknown"), "unknown")
    file = str(tmp_path / "tokenizer.json")
    options = {"clean": "lower", "eos_token": "[EOS]", "pad_token": "[EOS]"}
    run = run_with_tokenizer(tmp_path / "first", "hf", path=file, **options)
    second = run_with_tokenizer(tmp_path / "second", "hf", path=run)  # took it from the first one
    config = default.get_config()
    with config.unlocked():
        config.text.tokenizer, config.text.tokenizer_options = "hf", {"path": second}
    assert data.tokenizer_options(config) == {"path": file, **options}
    assert data.make_tokenizer(config)(["a red CAT"])[0, :4].tolist() == [1, 2, 3, 0]
    config.text.tokenizer, config.text.tokenizer_options = "clip", {"path": run}
    with pytest.raises(UsageError, match=r"the run in .*first has the tokenizer 'hf', not 'clip'"):
        data.make_tokenizer(config)
    itself = run_with_tokenizer(tmp_path / "itself", "hf", path=str(tmp_path / "itself"))
    config.text.tokenizer, config.text.tokenizer_options = "hf", {"path": itself}
    with pytest.raises(UsageError, match=r"the tokenizer path of .*leads to itself: name files"):
        data.make_tokenizer(config)


def test_frozen_parameters_outside_the_towers_have_a_fingerprint_of_their_own():
    def fingerprints(scale):
        config = configured(batch_size=8, steps=1)
        config.frozen, config.model.logit_scale_init = ("logit_scale",), scale
        return init_from.load_frozen(resolve(config, "eval"))[1]

    assert set(fingerprints(10.0)) == {"frozen"}
    assert fingerprints(10.0) == fingerprints(10.0) != fingerprints(11.0)


@pytest.mark.parametrize(("platform", "dtype"), [("cpu", "float32"), ("gpu", "bfloat16")])
def test_matrix_products_are_in_bfloat16_on_accelerators(monkeypatch, platform, dtype):
    config = configured(batch_size=8, steps=1)
    config.pretrain = configured(batch_size=8, steps=1)
    monkeypatch.setattr(runtime.jax, "default_backend", lambda: platform)
    setup = resolve(config, "eval")
    assert setup.model.image.dtype == setup.model.text.dtype == dtype
    assert {x.dtype for x in jax.tree.leaves(setup.parameters.shapes)} == {jnp.dtype("float32")}
    for saved in (setup.config, setup.config["pretrain"]):  # what config.json says
        assert saved["model"]["dtype"] == dtype
    assert config.model.dtype == "auto"
    config.model.dtype = "float32"  # what is asked for is done
    assert resolve(config, "eval").model.image.dtype == "float32"


def test_a_run_does_not_go_on_in_another_precision(monkeypatch, tmp_path):
    config = configured(batch_size=8, steps=1)
    run = Workdir(tmp_path)
    run.claim(resolve(config, "eval").config)
    (tmp_path / "checkpoints/1").mkdir(parents=True)
    run.check_config(resolve(config, "eval").config, allow_change=False)
    monkeypatch.setattr(runtime.jax, "default_backend", lambda: "gpu")
    with pytest.raises(UsageError, match=r"model\.dtype: float32 -> bfloat16"):
        run.check_config(resolve(config, "eval").config, allow_change=False)
    config.model.dtype = "float32"
    run.check_config(resolve(config, "eval").config, allow_change=False)
    run.close()


def test_a_run_continued_from_another_folder_says_where_its_data_are(tmp_path, monkeypatch):
    start, elsewhere, run = (tmp_path / name for name in ("start", "elsewhere", "start/run"))
    for folder in (elsewhere, run):
        folder.mkdir(parents=True)
    (start / "photos").mkdir()
    (start / "photos/captions.jsonl").write_text("{}")
    (start / "clip").mkdir()  # a word of the config
    (run / "env.json").write_text(json.dumps({"folder": str(start)}))
    config = ConfigDict({"input": {"path": "photos/captions.jsonl"}, "model": {"name": "clip"}})
    monkeypatch.chdir(elsewhere)
    advice = addresses.started_elsewhere(config, run)
    assert (
        f"the run was started in {start}, where config.input.path=photos/captions.jsonl" in advice
    )
    monkeypatch.chdir(start)
    assert addresses.started_elsewhere(config, run) == ""
    for content in ("[", '{"folder": 3}', "{}"):
        (run / "env.json").write_text(content)
        assert addresses.started_elsewhere(config, run) == ""


@pytest.mark.parametrize("is_moved", [False, True])
def test_loading_a_run_without_its_first_weights_says_where_they_were(
    tmp_path, monkeypatch, is_moved
):
    start, elsewhere, path = (tmp_path / name for name in ("start", "elsewhere", "start/run"))
    config = tiny.get_config()
    config.init_from, config.frozen = "runs/base", ("image", "text")
    run = Workdir(path)
    monkeypatch.chdir(start)
    run.claim(config.to_dict())
    run.write_env()
    run.close()
    (start / "runs/base").mkdir(parents=True)
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    advice = f"started in {start}, where config.init_from=runs/base is: go there"
    if is_moved:
        path = start.rename(tmp_path / "moved") / "run"
        there = re.escape(f"copy or link it to {elsewhere}/runs/base")
        advice = f"started in {start}, and config.init_from=runs/base is not here: {there}"
    with pytest.raises(WeightsError, match=f"no weights at runs/base; the run was {advice}"):
        vlc_jax.load(path)
