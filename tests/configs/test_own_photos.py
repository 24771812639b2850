"""Methods on a table of one's own, from a run of one's own (configs/records.py)."""

import importlib
import json

import pytest

from tests.support import helpers
from vlc_jax import losses
from vlc_jax.configs import records
from vlc_jax.errors import UsageError
from vlc_jax.run.processes.preemption import StopSignal
from vlc_jax.run.workdir import Workdir
from vlc_jax.setup import resolve
from vlc_jax.train import loop

CAPTION = "a small dog on the left of a red cat"


@pytest.fixture
def table(tmp_path):
    names = helpers.write_photos(tmp_path, 16)
    rows = [json.dumps({"image": name, "caption": CAPTION}) for name in names]
    (tmp_path / "captions.jsonl").write_text("\n".join(rows) + "\n")
    return tmp_path / "captions.jsonl"


TAGGING = {"negclip", "fsc_clip"}


@pytest.mark.parametrize("method", sorted(records.METHODS.keys() - TAGGING))
def test_every_method_makes_its_texts_of_any_caption(table, method):
    setup = resolve(records.get_config(f"path={table},batch=8,method={method}"))
    assert setup.optimization.losses.keys() != {"infonce"}
    texts = setup.training.data.hard_texts
    for name in setup.optimization.losses:
        for text in losses.LOSSES[name].needs:
            assert texts[f"{text}s"].count
    for side in texts.values():
        for name, generator in side.generators.items():
            assert "authors" not in generator.version, name


def test_words_that_the_tokenizer_does_not_know_are_said_and_most_of_them_refused(table, caplog):
    def look(*words):
        config = records.get_config(f"path={table},batch=8")
        config.text.tokenizer, config.text.tokenizer_options = "words", {"words": words}
        resolve(config).training.data.check_preview()

    *most, last = sorted({*CAPTION.split()})
    look(*most, last)
    assert "unknown to the tokenizer" not in caplog.text
    look(*most)
    assert "10% of the tokens stand for words unknown to the tokenizer" in caplog.text
    with pytest.raises(UsageError, match=r"70% of the tokens .* --words writes a list"):
        look("a", "the")


def test_methods_that_tag_captions_name_the_tagger(table):
    for method in TAGGING:
        config = records.get_config(f"path={table},method={method},tagger=scenes:scenes-mini")
        tagged = [o["tagger"] for o in config.input.negatives.options.values() if "tagger" in o]
        assert set(tagged) == {"scenes:scenes-mini"}
    with pytest.raises(ValueError, match=r"unknown method 'hphn'; did you mean 'hp_hn'. .*, dcsm,"):
        records.get_config("path=x.jsonl,method=hphn")


def test_a_tagger_serves_every_generator_that_takes_one(table):
    config = records.get_config(f"path={table},method=hp_hn,tagger=scenes:scenes-mini")
    tagged = {
        name for side in ("negatives", "positives") for name, options
        in config.input[side].options.items() if options.get("tagger") == "scenes:scenes-mini"
    }  # fmt: skip
    assert tagged == {"crepe_swap", "crepe_replace", "swap"}
    resolve(config)  # every one of them accepts it


@pytest.mark.parametrize(
    ("rows", "batch", "warmup"),
    [
        (['{"image": "%d.jpg"}'] * 1, 64, 100),  # 2,000 images
        (['{"image": "%d.jpg"}'], 8, 4),
        (["%d.jpg\ta dog", "%d.jpg\ta cat", "%d.jpg\ta bird"], 8, 4),  # a row per caption
        (["%d.jpg,a dog, red", "%d.jpg,a cat"], 8, 4),
    ],
)
def test_defaults_fit_the_number_of_images(tmp_path, rows, batch, warmup):
    count = 15 if batch == 8 else 5000
    table = tmp_path / "captions.jsonl"
    table.write_text("\n".join(row % i for i in range(count) for row in rows))
    config = records.get_config(f"path={table}")
    assert (config.batch_size, config.epochs, config.steps) == (batch, 30, None)
    assert config.optimizer.warmup_steps == warmup
    chosen = records.get_config(f"path={table},batch=4,steps=50")
    assert (chosen.batch_size, chosen.epochs, chosen.steps) == (4, None, 50)


def test_rows_are_counted_without_the_header_and_in_text_alone(tmp_path):
    (tmp_path / "a.xlsx").write_text("PK")
    assert records.count_images(str(tmp_path / "a.xlsx")) == records.ENOUGH
    (tmp_path / "a.csv").write_text("image,caption\na.jpg,a dog\nb.jpg,a cat\n")
    assert records.count_images(str(tmp_path / "a.csv")) == 2


@pytest.mark.parametrize(
    "argument", ["batch=-1", "steps=-1", "epochs=-2", "size=0", "holdout=1.0", "holdout=-0.1"]
)
def test_a_number_out_of_range_is_refused_by_its_name(argument):
    name, _, value = argument.partition("=")
    with pytest.raises(ValueError, match=rf"^{name} is a .*; got {value}"):
        records.get_config(f"path=x.jsonl,{argument}")


def test_without_a_holdout_all_images_are_trained_on_and_none_evaluated(table):
    setup = resolve(records.get_config(f"path={table},holdout=0"))
    assert len(setup.training.data.source) == 16
    assert not setup.evaluation.benchmarks


def saved_run(table, folder, argument, text):
    """A config and the workdir of its run; text: fields of the tower, for texts of 33 tokens."""
    config = records.get_config(f"path={table},{argument}")
    with config.unlocked():
        config.text.context_length, config.model.text = 33, text
    (folder / "run").mkdir()
    (folder / "run" / "config.json").write_text(json.dumps(config.to_dict()))
    return config, folder / "run"


@pytest.mark.parametrize("method", sorted(records.HEADS))
def test_a_head_is_trained_on_the_frozen_towers_of_a_run(table, tmp_path, method):
    first, run = saved_run(table, tmp_path, "size=48", {"depth": 1})
    argument = f"path={table},batch=16,method={method},tagger=scenes:scenes-mini"
    config = records.get_config(f"{argument},init_from={run}")
    assert (config.input.image_size, config.text.context_length) == (48, 33)
    assert config.steps == first.steps
    setup = resolve(config)
    assert setup.config["model"]["name"] == method
    frozen = {"image", "text"} if method == "labclip" else {"image", "text", "logit_scale"}
    frozen |= {"head/functional_words"} if method == "dcsm" else set()
    assert set(setup.parameters.frozen) == frozen
    recipe = importlib.import_module(f"vlc_jax.configs.{method}").get_config("data=coco")
    assert config.optimizer.to_dict() == recipe.optimizer.to_dict()
    assert {*config.losses} <= {*recipe.losses, "negclip"}
    for generator in setup.training.data.hard_texts["negatives"].generators.values():
        assert "mode=clean" in generator.version
    assert config.sub_batches == (2 if method == "dcsm" else 1)  # of eight pairs
    with pytest.raises(ValueError, match=f"method={method} trains a head .*: init_from=RUN"):
        records.get_config(argument)


def test_a_run_that_is_started_from_says_model_tokenizer_and_pixels(table, tmp_path):
    first, run = saved_run(table, tmp_path, "size=48,variant=S/16", {})
    config = records.get_config(f"path={table},method=hn,init_from={run}")
    assert (config.model.variant, config.input.image_size) == ("S/16", 48)
    assert (config.text.tokenizer, config.text.context_length) == ("bytes", 33)
    assert config.init_from == str(run)
    assert config.optimizer.learning_rate == first.optimizer.learning_rate / 10
    with pytest.raises(ValueError, match=r"none does not exist: name the workdir of a run"):
        records.get_config(f"path={table},init_from={tmp_path / 'none'}")


def test_a_run_is_not_resumed_on_images_of_other_sizes(table, tmp_path, monkeypatch):
    workdir = Workdir(tmp_path / "run")
    config = records.get_config(f"path={table},batch=8,size=40,variant=mini")
    first = resolve(config)
    sizes = first.training.data.image_sizes
    assert 3 <= len(sizes) <= 4  # every fourth
    assert {name: (tmp_path / name).stat().st_size for name in sizes} == sizes
    workdir.claim(first.config)
    workdir.write_env(input=first.training.data.fingerprints(), image_sizes=sizes)
    (workdir.path / "checkpoints/3").mkdir(parents=True)
    name = next(iter(sizes))
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes() + b"\n")
    with pytest.raises(UsageError, match=f"1 of .* image files .* other sizes(.|\n)*{name}: "):
        loop.train(resolve(config), workdir, StopSignal(), allow_change=False)
    workdir.close()


def test_prepared_shards_are_a_path_like_any_other(tmp_path):
    config = records.get_config(f"path={tmp_path}")
    assert config.input.source == "shards"
    assert config.input.source_options.to_dict() == {"path": str(tmp_path)}
    assert not config.evals  # what it is trained on does not judge it


def test_a_column_of_negatives_that_the_method_does_not_take_is_said(table, caplog):
    rows = [json.loads(line) | {"not": ["a red cat"]} for line in table.read_text().splitlines()]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = records.get_config(f"path={table},batch=8,method=degla")
    with config.unlocked():
        config.input.source_options.negatives_column = "not"
    resolve(config).training.data.check_preview()
    assert "records, kinds [], are not used" in caplog.text
