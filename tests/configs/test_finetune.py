"""Published weights on a table of one's own (configs/finetune.py)."""

import csv
import json

import pytest

from tests.support import helpers, small_models
from vlc_jax import models
from vlc_jax.configs import finetune, records
from vlc_jax.input_pipeline import record
from vlc_jax.setup import exported_config, resolve

HEADER = ["filepath", "Title", "negative_caption", "pos_caption"]


@pytest.fixture
def table(tmp_path):
    names = helpers.write_photos(tmp_path, 32)
    with (tmp_path / "my.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(HEADER)
        rows.writerows([name, "a dog and a cat", "a cat and a bird", "a hound and a cat"]
                       for name in names)  # fmt: skip
    return tmp_path / "my.csv"


@pytest.fixture
def weights(tmp_path):
    """A folder of Hugging Face's form with a CLIP of few numbers, and the names of its variant."""
    config = records.get_config()
    model = models.build("clip", "mini/8", image_size=64, vocab_size=260)
    small_models.write_hugging_face(tmp_path / "clip", model, "hf_clip", 0.1, vocab_size=260)
    content = exported_config.content(config, None)
    (tmp_path / "clip" / exported_config.NAME).write_text(json.dumps(content))
    return tmp_path / "clip"


def config(weights, table, more=""):
    return finetune.get_config(f"weights={weights},data={table},holdout=0.25,batch=8{more}")


def test_usual_names_of_columns_are_found_and_said(weights, table, capsys):
    source = config(weights, table, ",method=hp_hn").input.source_options
    found = {name: source[f"{name}_column"] for name in record.COLUMNS}
    assert [*found.values()] == HEADER
    assert "image=filepath, caption=Title, negatives=negative_caption" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("method", "head", "generators"),
    [
        ("clip_ft", "clip", {"negatives": 0, "positives": 0}),
        ("negclip", "clip", {"negatives": 1, "positives": 0}),
        ("hp_hn", "clip", {"negatives": 1, "positives": 1}),
        ("fsc_clip", "pooled", {"negatives": 3, "positives": 0}),
    ],
)
def test_hard_texts_of_the_table_replace_rules(weights, table, method, head, generators):
    setup = resolve(config(weights, table, f",method={method}"))
    assert setup.config["model"]["name"] == head
    for side, count in generators.items():
        texts = setup.training.data.hard_texts.get(f"{side[:-1]}_texts")
        options = setup.config["input"][side]
        assert options["count"] == count, texts
        assert not count or options["generators"] == {"from_record": 1.0}


def test_pixels_and_texts_are_those_of_the_weights(weights, table):
    setup = resolve(config(weights, table))
    assert setup.config["model"]["variant"] == "mini/8"
    assert setup.config["text"]["tokenizer"] == "bytes"
    crops = [setup.config["input"][name] for name in ("image_size", "crop", "eval_crop")]
    assert crops == [64, "random_resized", "centre"]
    assert setup.training.steps == 5 * 3  # epochs of 24 images in batches of 8


@pytest.mark.parametrize(("frozen", "trained"), [("image", "text"), ("text", "image")])
def test_a_tower_is_frozen(weights, table, frozen, trained):
    parameters = resolve(config(weights, table, f",frozen={frozen}")).parameters
    assert parameters.trained_shapes().keys() == {trained, "logit_scale"}


@pytest.mark.parametrize(
    ("images", "rate", "every"), [(4000, 1e-5, 3600 // 256), (4096, 5e-6, 500), (9000, 5e-6, 500)]
)
def test_rate_and_evaluations_go_by_the_size_of_the_table(tmp_path, images, rate, every):
    rows = (f"{n}.jpg,a dog" for n in range(images))
    (tmp_path / "my.csv").write_text("\n".join(["image,caption", *rows]))
    made = finetune.get_config(f"weights=runs/clip,data={tmp_path / 'my.csv'}")
    assert (made.optimizer.learning_rate, made.eval.every) == (rate, every)


def test_lora_trains_queries_and_values(weights, table):
    lora = config(weights, table, ",lora=4")
    assert (lora.lora.rank, lora.lora.alpha, lora.optimizer.learning_rate) == (4, 4.0, 1e-4)


@pytest.mark.parametrize(
    ("weights", "address"),
    [
        ("ViT-B-32@openai", "open_clip://ViT-B-32/openai"),
        ("hf://me/clip@main", "hf://me/clip@main"),
        ("runs/clip", "runs/clip"),
    ],
)
def test_a_name_of_open_clip_becomes_an_address(weights, address):
    assert finetune.address(weights) == address


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (",holdout=1", "holdout is a share in"),
        (",lora=-1", "learning_rate and steps are 0 or more"),
        (",epochs=0", "epochs is a whole number from 1 on; got 0"),
        (",method=hphn", "unknown method 'hphn'; did you mean 'hp_hn'"),
        (",lr=1", "did you mean 'learning_rate'"),
    ],
)
def test_a_wrong_argument_is_refused(table, more, line):
    with pytest.raises(ValueError, match=line):
        finetune.get_config(f"weights=runs/clip,data={table}{more}")


@pytest.mark.parametrize(
    ("name", "text", "names"),
    [
        ("a.csv", "sep=;\nimage;caption\n", ["image", "caption"]),
        ("a.tsv", "image\ttitle\n", ["image", "title"]),
        ("a.jsonl", '{"image": "a", "text": "b"}\n', ["image", "text"]),
        ("a.csv", "", []),
        ("a.json", '{"images": []}', []),
    ],
)
def test_columns_of_a_table(tmp_path, name, text, names):
    (tmp_path / name).write_text(text)
    assert finetune.column_names(str(tmp_path / name)) == names


def test_siglip_has_its_loss(tmp_path, table):
    for text in ('{"model_type": "siglip"}', '{"losses": {"sigmoid": {"weight": 1.0}}}'):
        (tmp_path / "config.json").write_text(text)
        assert [*config(tmp_path, table).losses] == ["sigmoid"]
    with pytest.raises(ValueError, match="the weights are SigLIP's"):
        config("hf://google/siglip2-base", table, ",method=hn")
