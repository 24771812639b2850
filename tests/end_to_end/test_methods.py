"""Every method and control on a miniature of COCO, from published files to an exported folder.

Data and weights are shared, and each method is one process. Three are run whole
(tests/support/chain.py): trained from imported weights, stopped by SIGTERM, resumed, evaluated
again and exported. The others are run up to their step: tests/configs/test_config_training.py
trains each method on scenes.
"""

import json
from pathlib import Path

import pytest

from tests.support import helpers, labelled_sets, miniature, recipes, shared
from tests.support.configs import CASES
from tests.support.recipes import PARTS

GENERATED = (
    *("--negatives", "negclip,crepe_swap,crepe_replace,crepe_negate,svlc_rule,left_right"),
    *("--positives", "replace,swap", "--texts-per-kind", "2"),
    "--generator-options",
    json.dumps(
        {
            "negclip": {"tagger": "scenes:scenes-mini", "mode": "authors"},
            "svlc_rule": {"mode": "authors"},
            "left_right": {"mode": "authors"},
        }
    ),
)
METHODS = {  # -> its recipe, and the arguments that name its data
    "clip_ft": ("clip_ft", "path={negclip}"),
    "clip_coco": ("clip_coco", "path={texts}"),
    "siglip_ft": ("siglip_ft", "path={texts}"),
    "negclip": ("negclip", "path={negclip}"),
    "negclip_generated": (
        "negclip",
        "path={texts},hard_images=0,negatives=negclip,tagger=scenes:scenes-mini",
    ),
    "crepe_swap": ("crepe", "kind=swap,path={texts}"),
    "crepe_replace": ("crepe", "kind=replace,path={captions},image_folder={images}"),
    "hn": ("hn", "path={texts}"),
    "hp_hn": (
        "hp_hn",
        "path={captions},image_folder={coco},replace_hp={replace},swap_hp={swap},hn_weight=0.5",
    ),
    "svlc": ("svlc", "path={texts},in_batch,negatives=rule"),
    "svlc_pos": ("svlc_pos", "path={dense},negatives=rule"),
    "dac": ("dac", "path={dense},negatives=rule,bag=3"),
    "fsc_clip": ("fsc_clip", "path={texts},tagger=scenes:scenes-mini"),
    "ce_clip": ("ce_clip", "path={captions},image_folder={images}"),
    "read_clip": ("read_clip", "path={captions},image_folder={images},tagger=scenes:scenes-mini"),
    "degla": ("degla", "path={texts}"),
    "tripletclip": ("tripletclip", "path={triplets}"),
    "conclip": ("conclip", "path={triplets}"),
    "csclip": ("csclip", "path={units}"),
    "clic": ("clic", "path={captions},image_folder={images}"),
    "c2lip_siglip": ("c2lip", "path={dense},phrases=table,bag=3"),
    "siglip2_dense_siglip": ("siglip2_dense", "path={texts},crops=2,crop_size=0,prototypes=16"),
    "flair": ("flair", "path={dense},bag=3,variant=B/32"),
    "leftright": ("leftright", "path={texts},variant=B/32,size=224"),
    "leftright_siglip": ("leftright", "path={llava},image_folder={images},family=siglip"),
}
# trained whole, frozen but for adapters, and of the other family: what is saved differs
WHOLE = ("negclip", "svlc", "leftright_siglip")
CONTROLS = {"clip_coco", "siglip_ft"}  # without the argument `data`
# recipes that train a part of the parameters
FROZEN = ("siglip_ft", "svlc", "svlc_pos", "dac", "leftright", "conclip", "clic")
FLAGS = (
    *("--config.optimizer.warmup_steps=2", "--config.log_every=1", "--config.eval.batch_size=8"),
    *("--config.checkpoint.every=1000", "--config.optimizer.learning_rate=1e-3"),
    *("--config.input.max_bad_share=0.1", "--config.epochs=3"),
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Name in `METHODS` -> path of a published file, or of a folder prepared from some."""
    return shared.make_once(tmp_path_factory, "methods", write_data)


def write_data(folder):
    coco = recipes.write_coco(folder / "coco")
    own = "captions_train2014.json"
    recipes.prepare(coco, folder / "negclip", "negclip", "train_neg_clip.tsv")
    recipes.prepare(coco, folder / "texts", "coco", own, "--split", "train", *GENERATED)
    recipes.prepare(coco, folder / "test", "coco", "dataset_coco.json", "--split", "test")
    write_texts(coco)
    files = {
        **{name: folder / name for name in ("negclip", "texts", "test", "coco")},
        "captions": coco / own,
        "images": coco / "train2014",
        **{name: coco / f"{name}_hp.jsonl" for name in ("replace", "swap")},
        **{name: coco / f"{name}.jsonl" for name in ("dense", "triplets", "units")},
        "llava": coco / "llava.json",
    }
    clip, siglip = recipes.write_clip(folder / "clip"), recipes.write_siglip(folder / "siglip")
    return {name: str(path) for name, path in files.items()}, clip, siglip


def write_texts(coco):
    """Hard positives line by line, tables of dense captions, of triplets and of units with their
    foils, and conversations."""
    document = json.loads((coco / "captions_train2014.json").read_text())
    captions = [row["caption"] for row in document["annotations"]]
    sides = [text.split(" and ") for text in captions]
    swapped = [" and ".join(reversed(two)) if len(two) == 2 else "None" for two in sides]
    for name, texts in (("replace", [f"one {text}" for text in captions]), ("swap", swapped)):
        helpers.write_rows(coco / f"{name}_hp.jsonl", texts)
    dense, triplets, units, talks = [], [], [], []
    for number, image in enumerate(document["images"]):
        name, (first, *others) = image["file_name"], captions[5 * number : 5 * number + 5]
        row, foils = {"image": f"train2014/{name}", "caption": first}, [f"no {x}" for x in others]
        dense.append({**row, "positives": others})
        other = document["images"][number - 1]["file_name"]
        triplets.append({**row, "negatives": foils[:1], "negative_image": f"train2014/{other}"})
        units.append({**row, "positives": others, "negatives": foils})
        turns = miniature.talk("<image>", first)
        talks.append({"id": str(number), "image": name, "conversations": turns})
    for name, rows in (("dense", dense), ("triplets", triplets), ("units", units)):
        helpers.write_rows(coco / f"{name}.jsonl", rows)
    (coco / "llava.json").write_text(json.dumps(talks))


def test_every_recipe_is_run():
    # test_heads_recipes, test_xvlm_training
    elsewhere = {"dcsm", "labclip", "pacl", "pooled", "sparc", "tflocal", "xvlm_ft"}
    methods = {Path(case.partition(":")[0]).stem for case in CASES if case.endswith(":data=coco")}
    assert methods | CONTROLS == elsewhere | {recipe for recipe, _ in METHODS.values()}


def command(method, data, folder):
    """The words that train it in folder/run."""
    files, clip, siglip = data
    recipe, given = METHODS[method]
    weights, small = siglip if "siglip" in method else clip
    config = recipes.wrapper(folder, recipe, small)
    given = given.format(**files) + ("" if recipe in CONTROLS else ",data=coco")
    arguments = f"{weights},{given},validation={files['test']},batch=8"
    return "--config", f"{config}:{arguments}", "--workdir", folder / "run", *FLAGS


@pytest.mark.slow
@pytest.mark.parametrize("method", [name for name in METHODS if name not in WHOLE])
def test_a_method_runs_from_published_files_up_to_its_step(method, data, tmp_path):
    words = command(method, data, tmp_path)
    helpers.python("-m", "tests.support.until_compiled", *words, timeout=500, code=0)
    check_parameters(method, tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("method", WHOLE)
def test_a_method_runs_from_files_to_an_exported_folder(method, data, tmp_path):
    chain = ("-m", "tests.support.chain", tmp_path / "exported")
    done = helpers.python(*chain, *command(method, data, tmp_path), timeout=500, code=0)
    assert json.loads(done.stdout.splitlines()[-1]) == [75, 0, 0, 0], done.stderr

    workdir = tmp_path / "run"
    events = {row["event"] for row in helpers.rows(workdir / "events.jsonl")}
    assert events >= {"preempted", "resume", "done"}
    rows = helpers.rows(workdir / "metrics.jsonl")
    assert [row["step"] for row in rows] == list(range(1, 3 * PARTS["train"] // 8 + 1))
    saved = json.loads((workdir / "config.json").read_text())
    for loss in saved["losses"]:
        assert max(row[f"train/{loss}"] for row in rows) > 0, loss
    check_parameters(method, workdir)
    trained = results(workdir, rows[-1]["step"])
    if method == "negclip":  # what was exported scores as the run does, and classifies
        files, (_, small), _ = data
        pets, voc = tmp_path / "sets/wds_vtab-pets", tmp_path / "sets/voc2007_multilabel"
        for split in ("train", "test"):
            labelled_sets.write_tars(pets, [b"0", b"1"] * 4, names=("cat", "dog"), split=split)
        vectors = [labelled_sets.npy(row) for row in ([1, 0, 1], [0, 1, 0], [0, 0, 0])]
        labelled_sets.write_tars(voc, vectors, "npy")
        config = recipes.wrapper(tmp_path, "zero_shot", small, "eval")
        config += f":weights={tmp_path / 'exported'},family=clip,variant=B/32,size=224"
        config += f",root={tmp_path / 'sets'},sets=pets+voc2007_multilabel,probe=pets"
        flags = ("--mode=eval", "--config.eval.batch_size=8")
        workdir = tmp_path / "zero_shot"
        helpers.run(f"{config},path={files['test']}", workdir, *flags, code=0)
        assert results(workdir, 0) == trained
        headlines = {"pets": "mean_per_class_recall", "pets_probe": "accuracy"}
        headlines["voc2007_multilabel"] = "mean_average_precision"
        for name, headline in headlines.items():
            row = json.loads((workdir / f"evals/{name}/0.json").read_text())
            assert row["summary"][0] == headline


def results(workdir, step):
    row = json.loads((workdir / f"evals/retrieval/{step}.json").read_text())
    return {name: metric["value"] for name, metric in row["metrics"].items()}


def check_parameters(method, workdir):
    counts = json.loads((workdir / "env.json").read_text())["parameters"]
    assert (counts["trained"] < counts["total"]) == (METHODS[method][0] in FROZEN)
