"""The recipes of heads on COCO and LLaVA, from files of the published form."""

import functools
import importlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.special

from tests.support import helpers, miniature, recipes, shared
from tests.support.configs import write_vectors
from tests.support.training import train
from vlc_jax import losses, types
from vlc_jax.configs import dcsm
from vlc_jax.configs.llava import llm2vec
from vlc_jax.input_pipeline.commands import prepare
from vlc_jax.setup import data as setup_data
from vlc_jax.setup import resolve
from vlc_jax.tools import embed_text

TAGGER = "tagger=scenes:scenes-mini"
TALKS = "path={web}+{mixed},image_folder={images}+{coco}"
SWITCHES = "negatives=leftright,temperature=learned"
RECIPES = {  # its config, arguments, what is trained of the towers
    "dcsm": ("dcsm", "data=coco,path={pairs},image_folder={images},blocks=2", ()),
    "dcsm_text": (
        "dcsm",
        "data=coco,path={negclip},image_folder={coco},opposite=text,mode=clean,blocks=2",
        (),
    ),
    "coco_pacl": ("pacl", "data=coco,path={captions},image_folder={images}," + TAGGER, ()),
    "coco_sparc": ("sparc", "data=coco,path={captions},image_folder={images}," + TAGGER, ()),
    "coco_labclip": ("labclip", "data=coco,path={captions},image_folder={images}," + TAGGER, ()),
    "coco_pooled": ("pooled", "data=coco,path={captions},image_folder={images}", ()),
    "coco_tflocal": (
        "tflocal",
        "data=coco,path={captions},image_folder={images},hidden=64,depth=1",
        (),
    ),
    "llava_pacl": ("pacl", f"data=llava,{TALKS},{TAGGER},rope=feature_1d", ()),
    "llava_pacl_unlocked": (
        "pacl",
        f"data=llava,{TALKS},{TAGGER},pooling=pairwise,rope=qk_2d,image_tower=unlocked,{SWITCHES}",
        ("image",),
    ),
    "llava_sparc": ("sparc", f"data=llava,{TALKS},{TAGGER},rope=feature_2d,{SWITCHES}", ()),
    "llava_clip_ft": ("llava.clip_ft", TALKS, ("text", "image")),
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Name in RECIPES -> path, and weights with the fields of their towers."""
    return shared.make_once(tmp_path_factory, "heads_recipes", write_data)


def write_data(folder):
    coco = recipes.write_coco(folder / "coco")
    document = json.loads((coco / "captions_train2014.json").read_text())
    captions = [row["caption"] for row in document["annotations"]]
    pairs, web, mixed = [], [], []
    for number, image in enumerate(document["images"]):
        name, texts = image["file_name"], captions[5 * number : 5 * number + 5]
        other = str(number ^ 1)
        pairs.append({"id": str(number), "image": name, "caption": texts, "hard_images": [other]})
        talk = miniature.talk("<image>\nWhat is there?", texts[0])
        web.append({"id": name, "image": name, "conversations": talk})
        talk = [*talk, *miniature.talk("And what else?", texts[1])]
        mixed.append({"id": number, "image": f"train2014/{name}", "conversations": talk})
    helpers.write_rows(coco / "pairs.jsonl", pairs)
    (coco / "web.json").write_text(json.dumps(web))
    (coco / "mixed.json").write_text(json.dumps(mixed))
    files = {
        **{name: coco / f"{name}.json" for name in ("web", "mixed")},
        "coco": coco,
        "images": coco / "train2014",
        "pairs": coco / "pairs.jsonl",
        "negclip": coco / "train_neg_clip.tsv",
        "captions": coco / "captions_train2014.json",
    }
    return files, recipes.write_clip(folder / "clip")


ELSEWHERE = {"stage1", "stage2", "vlm2vec"}  # test_llava_training.py, test_llava_weights.py


def test_every_recipe_of_llava_is_run():
    there = {path.stem for path in (helpers.ROOT / "configs/llava").glob("*.py")} - {"__init__"}
    assert there == {"clip_ft", "llm2vec"} | ELSEWHERE  # RECIPES, and below


@pytest.mark.parametrize("opposite", ["image", "text"])
def test_dcsm_adds_the_cross_entropies_of_rows_and_of_columns(opposite):
    """16 x 16 with pictures of the opposites; else 8 images choose among 16 captions, 8 captions
    among 8 images.
    """
    config = dcsm.get_config(f"data=coco,opposite={opposite}")
    rng = np.random.default_rng(0)
    rows = config.batch_size // config.sub_batches
    scores = rng.normal(size=(rows, rows)).astype(np.float32)
    wrong = rng.normal(size=(rows, rows)).astype(np.float32)
    features = types.ImageFeatures(jnp.zeros((rows, 1)))
    outputs = types.Outputs(
        image=features,
        text=types.TextFeatures(features.pooled),
        scores=jnp.asarray(scores),
        logit_scale=jnp.float32(config.model.logit_scale_init),
        negative_text=types.TextFeatures(features.pooled[:, None]),
        negative_scores=jnp.asarray(wrong[..., None]),
    )
    batch = {"mask": jnp.ones(rows, bool), "negative_text": jnp.zeros((rows, 1, 3), jnp.int32)}
    batch["negative_mask"] = jnp.ones((rows, 1), bool)
    total = jax.jit(functools.partial(losses.total, config.losses.to_dict()))
    value, _ = total(outputs, batch)
    choices = scores if opposite == "image" else np.concatenate([scores, wrong], axis=1)
    own = np.arange(rows)
    of_images = scipy.special.log_softmax(choices, axis=1)[own, own]
    of_captions = scipy.special.log_softmax(scores, axis=0)[own, own]
    assert choices.shape == {"image": (16, 16), "text": (8, 16)}[opposite]
    # twice: the weight of the authors' code is 4, of the mean of both directions
    assert float(value) == pytest.approx(-2 * (of_images.mean() + of_captions.mean()), rel=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_trains_what_it_says_on_published_files(recipe, data, tmp_path):
    files, (weights, small) = data
    name, given, towers = RECIPES[recipe]
    arguments = f"{weights},{given.format(**files)},variant=B/32,size=64"
    arguments += "" if "dcsm" in name else ",batch=8"
    is_evaluated = recipe in ("dcsm", "llava_pacl", "llava_sparc")
    arguments += f",validation={files['captions']}" if is_evaluated else ""
    config = importlib.import_module(f"vlc_jax.configs.{name}").get_config(arguments)
    with config.unlocked():
        for part in ("image", "text"):
            config.model[part].update(small[part])
        config.update_from_flattened_dict(small["fields"])
        config.model.activation = None  # of B/32
        config.epochs, config.steps = None, 2
        config.log_every, config.eval.batch_size, config.optimizer.warmup_steps = 2, 8, 0
        for options in config.evals.values():
            options.image_folder = str(files["images"])
        config.input.max_bad_share = 0.1
    workdir = train(config, tmp_path / "run")
    (row,) = helpers.rows(workdir / "metrics.jsonl")  # of two rows the report draws curves
    assert row["step"] == 2
    for loss in config.losses:
        assert row[f"train/{loss}"] > 0, loss
    assert (workdir / "evals/retrieval/2.json").exists() == is_evaluated
    env = json.loads((workdir / "env.json").read_text())
    parts = env["parameters"]
    expected = sum(parts[tower] for tower in towers) + parts.get("head", 0)
    expected -= parts["image"] if name == "llava.clip_ft" else 0  # frozen
    if "dcsm" in name:  # whose vectors of functional words are frozen, too
        expected -= resolve(config).parameters.shapes["head"]["functional_words"].size
    if name in ("llava.clip_ft", "labclip", "pooled") or "learned" in given:
        expected += 1  # the temperature
    assert parts["trained"] == expected
    is_tagged = "tagger" in given and name != "labclip"  # whose tagger is of its negatives
    assert ("noun_phrases" in env["input"]) == is_tagged


def prepared(files, folder):
    """Conversations with left / right negatives, by the command in the config's docstring."""
    words = ("--size=64", "--answers=joined", "--negatives=left_right", "--out", folder)
    options = json.dumps({"left_right": {"mode": "authors"}})
    files = ("--annotations", files["mixed"], "--images", files["coco"])
    command = ("llava", *files, *words, "--generator-options", options)
    assert prepare.main([str(word) for word in command]) == 0
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("family", ["clip", "siglip"])
def test_vectors_of_all_texts_train_a_connector_or_the_tower(family, data, tmp_path):
    files, (weights, _) = data
    if family == "siglip":
        weights, _ = recipes.write_siglip(tmp_path / "siglip")
        path = prepared(files, tmp_path / "prepared")
        given = f"path={path},negatives=leftright,image_tower=unlocked"
    else:
        given = TALKS.format(**files) + ",variant=B/32,size=64"
    given = f"family={family},{weights},{given},batch=8,vectors={tmp_path / 'x.npy'}"
    config = llm2vec.get_config(given)
    write_vectors(tmp_path / "x.npy", embed_text.texts_of(config))
    source = setup_data.source(config, "train")
    has_negatives = any(any(source[i].negatives) for i in range(len(source)))
    assert has_negatives == (family == "siglip")
    with config.unlocked():
        config.model.image.update(recipes.SMALL)
        config.model.text.projection = 16
        config.model.image.update({"projection": 16} if family == "clip" else {})
        config.epochs, config.steps, config.log_every, config.input.max_bad_share = None, 2, 2, 0.1
        config.optimizer.warmup_steps = 0
    workdir = train(config, tmp_path / "run")
    (row,) = helpers.rows(workdir / "metrics.jsonl")
    (loss,) = config.losses
    assert loss == {"clip": "infonce", "siglip": "sigmoid_negatives"}[family]
    assert row[f"train/{loss}"] > 0
    parts = json.loads((workdir / "env.json").read_text())["parameters"]
    connector = (24 + 1) * 16 + (16 + 1) * 16
    assert parts["text"] == connector
    scales = {"clip": 1, "siglip": 2}[family]  # and a bias
    image = parts["image"] if family == "siglip" else 0
    assert parts["trained"] == connector + scales + image
