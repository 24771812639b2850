"""Texts of every preset, written by the command, are what the config of its method trains on."""

import json

import pytest

from tests.support import batches, helpers, miniature
from vlc_jax.configs import csclip, dac, hp_hn, svlc_pos
from vlc_jax.input_pipeline import record_validation
from vlc_jax.input_pipeline.hard_texts.llm.presets import PRESETS
from vlc_jax.input_pipeline.loader.loader import make_train
from vlc_jax.setup import data

PHOTOS = [f"a dog and a cat on mat {i}" for i in range(6)]
ANSWERS = {  # preset -> what a model writes of a caption
    "dac_dense": lambda text: "\n".join(f"{k}. Part {k} of {text}." for k in range(1, 11)),
    "c2lip_phrases": lambda text: f"1. a dog\n2. a cat\n3. {text.partition(' on ')[2]}",
    "csclip_units": lambda text: f"entity: a dog -> a fox\nrelation: {text} -> no {text}",
}


def written(preset, text):
    """The texts that ANSWERS, or else a change of the caption, have for a caption."""
    if preset not in ANSWERS:
        return [f"{preset} of {text}"]
    lines = ANSWERS[preset](text).split("\n")
    return [line.partition(" ")[2].partition(" -> ")[0] for line in lines]


def run(preset, captions, out):
    write = ANSWERS.get(preset, lambda text: written(preset, text)[0])
    assert batches.ask(captions, out, kind=preset) == 0
    assert batches.read(out, batches.answer(out, write)) == 0


@pytest.fixture
def photos(tmp_path):
    names = helpers.write_photos(tmp_path / "photos", len(PHOTOS))
    rows = ({"image": n, "caption": c} for n, c in zip(names, PHOTOS, strict=True))
    return helpers.write_rows(tmp_path / "photos" / "captions.jsonl", rows)


def batch(config):
    """Caption -> positives and negatives of a training batch of this config."""
    with config.unlocked():
        config.text.tokenizer, config.text.tokenizer_options = "bytes", {}
        config.text.context_length = 64
        config.input.image_size = 8
    tokenizer, source = data.make_tokenizer(config), data.source(config, "train")
    captions = {c: r for i in range(len(source)) for r in [source[i]] for c in r.captions}
    texts, seen = data.hard_texts(config), {}
    loader = make_train(
        source,
        tokenizer,
        data.image_transform(config, is_training=True),
        batch_size=len(source),
        seed=0,
        **texts,
    )
    with loader:
        rows = next(loader)
    ids = {tokenizer([text])[0].tobytes(): text for text in captions}
    for k, text in enumerate(rows["text"]):
        seen[ids[text.tobytes()]] = {
            side: [row.tobytes() for row, is_one in zip(*pair, strict=True) if is_one]
            for side in ("positive", "negative")
            if f"{side}_text" in rows
            for pair in [(rows[f"{side}_text"][k], rows[f"{side}_mask"][k])]
        }
    return seen, lambda texts: [row.tobytes() for row in tokenizer(texts)]


def table_config(module, table, photos, **arguments):
    given = {"data": "coco", "path": table, "image_folder": photos.parent, "negatives": "rule"}
    given |= arguments
    return module.get_config(",".join(f"{name}={value}" for name, value in given.items()))


@pytest.mark.parametrize("preset", ["dac_dense", "c2lip_phrases"])
def test_dac_trains_on_a_bag_of_them(tmp_path, photos, preset):
    run(preset, photos, tmp_path / "out")
    config = table_config(dac, tmp_path / "out" / "table.jsonl", photos, bag=3)
    seen, ids = batch(config)
    assert len(seen) == len(PHOTOS)
    for caption, texts in seen.items():
        assert len({*texts["positive"]}) == 3
        assert {*texts["positive"]} <= {*ids(written(preset, caption))}


def test_svlc_pos_trains_on_them(tmp_path, photos):
    run("svlc_paraphrase", photos, tmp_path / "out")
    seen, ids = batch(table_config(svlc_pos, tmp_path / "out" / "table.jsonl", photos))
    assert len(seen) == len(PHOTOS)
    for caption, texts in seen.items():
        assert texts["positive"] == ids(written("svlc_paraphrase", caption))


REPLACING = [name for name, preset in PRESETS.items() if preset.lines == "replace_hp.jsonl"]
SWAPPING = [name for name, preset in PRESETS.items() if preset.lines == "swap_hp.jsonl"]


@pytest.mark.parametrize("preset", [*REPLACING, *SWAPPING])
def test_hp_hn_trains_on_them(tmp_path, preset):
    miniature.write_coco(tmp_path)
    path = tmp_path / "annotations" / "captions_train2017.json"
    document = json.loads(path.read_text())
    for annotation in document["annotations"]:
        annotation["caption"] += " and on"  # which every preset asks about
    path.write_text(json.dumps(document))
    run(preset, path, tmp_path / "out")
    lines = PRESETS[preset].lines
    kind = lines.removesuffix(".jsonl")
    config = hp_hn.get_config(
        f"data=coco,path={path},image_folder={tmp_path},{kind}={tmp_path / 'out' / lines}"
    )
    with config.unlocked():  # of the kind that was written
        config.input.positives.generators = {kind.removesuffix("_hp"): 1.0}
        config.input.positives.fallback = "skip"
    seen, ids = batch(config)
    for caption, texts in seen.items():
        assert texts["positive"] == ids(written(preset, caption))


def test_units_and_their_foils_stand_in_the_same_places(tmp_path, photos):
    run("csclip_units", photos, tmp_path / "out")
    told = json.loads((tmp_path / "out" / "summary.json").read_text())
    given = f"data=coco,path={tmp_path / 'out' / 'table.jsonl'},image_folder={photos.parent}"
    config = csclip.get_config(given)
    with config.unlocked():
        columns = ("negative_kinds", "positive_kinds")
        config.input.source_options.update({f"{name}_column": name for name in columns})
    record = data.source(config, "train")[0]
    record_validation.captions(record)
    (caption,) = record.captions
    assert record.positives == [["a dog", caption]]
    assert record.negatives == [["a fox", f"no {caption}"]]
    kinds = [[f"{told['version']}:{kind}" for kind in ("entity", "relation")]]
    assert record.positive_kinds == record.negative_kinds == kinds
    seen, ids = batch(config)
    assert {*seen[caption]["positive"]} == {*ids(["a dog"])}  # the caption is not its own positive
    # word tables change the caption; then come the foils of the positives
    changed, foil = seen[caption]["negative"]
    assert foil == ids(["a fox"])[0]
    assert changed not in ids(["a fox", f"no {caption}", caption])
