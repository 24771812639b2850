"""Which rules make the hard texts of the recipes that published rows are compared with."""

import importlib

import numpy as np
import pytest

from vlc_jax.configs import ce_clip, svlc
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.setup import data

TAGGED = "tagger=scenes:scenes-mini"
TAGS = "tagger=scenes:scenes-mini@1"
CLASSES = "classes=object,color,size,material,state,action,relation"
NEGCLIP = f"1 mode=authors verbs=phrases conjuncts=keep {TAGS}"
SVLC = "1 mode=authors classes=color,action,size,state,material"
CATEGORIES = "categories=action,color,size,state,spatial_relation,action_relation"
CREPE = {"crepe_replace": f"2 {CLASSES} tagger=none", "crepe_swap": f"3 {CLASSES} tagger=none"}
POSITIVES = {"replace": f"2 mode=clean {CATEGORIES}", "swap": "2 mode=clean tagger=none"}
LEFT_RIGHT = {"left_right": "1 mode=authors keys=phrases"}
VERSIONS = {  # recipe, arguments -> generator -> version
    ("negclip", f"data=coco,hard_images=0,negatives=negclip,{TAGGED}"): {"negclip": NEGCLIP},
    ("dcsm", f"data=coco,opposite=text,captions=negclip,{TAGGED}"): {"negclip": NEGCLIP},
    ("fsc_clip", f"data=coco,{TAGGED}"): {
        "negclip": NEGCLIP,
        "crepe_replace": CREPE["crepe_replace"],
        "shuffle_trigrams": "1 mode=authors",
    },
    ("ce_clip", "data=coco"): {
        "crepe_replace": "2 classes=object tagger=none",
        "crepe_swap": "3 classes=object tagger=none",
        "svlc_rule": SVLC.replace("authors", "clean"),
    },
    ("degla", "data=coco"): CREPE,
    ("read_clip", f"data=coco,{TAGGED}"): {"negclip": NEGCLIP},
    ("labclip", f"data=coco,{TAGGED}"): {"shuffle_nouns_and_adjectives": f"1 mode=authors {TAGS}"},
    ("svlc", "data=coco,negatives=rule"): {"svlc_rule": SVLC},
    ("svlc_pos", "data=coco,negatives=rule"): {"svlc_rule": SVLC},
    ("dac", "data=coco,negatives=rule"): {"svlc_rule": SVLC},
    ("leftright", "data=coco"): LEFT_RIGHT,
    ("pacl", "data=coco,negatives=leftright"): LEFT_RIGHT,
    ("pacl", "data=llava,negatives=leftright"): LEFT_RIGHT,
    ("sparc", "data=llava,negatives=leftright"): LEFT_RIGHT,
    ("llava.llm2vec", "negatives=leftright"): LEFT_RIGHT,
    ("hn", "data=coco"): CREPE,
    ("hp_hn", "data=coco"): CREPE | POSITIVES,
}


@pytest.mark.parametrize(("recipe", "argument"), VERSIONS)
def test_a_recipe_keeps_the_rules_that_its_numbers_are_of(recipe, argument):
    config = importlib.import_module(f"configs.{recipe}").get_config(argument)
    sides = {side: config.input[side].to_dict() for side in ("negatives", "positives")}
    made = sampling.versions(
        {side: sampling.make_hard_texts(side, **sides[side]) for side in sides}
    )
    found = {name.partition("/")[2]: version for name, version in made.items()}
    assert found == VERSIONS[recipe, argument]


def test_words_that_a_language_model_fills_in_are_the_authors_too():
    options = svlc.get_config("data=coco,language_model=folder").input.negatives.options
    assert {name: each.mode for name, each in options.items()} == {
        "svlc_rule": "authors",
        "svlc_fill_mask": "authors",
    }


def test_given_negatives_of_ce_clip_keep_the_places_of_their_kinds():
    config = ce_clip.get_config("data=coco,kinds=swap+noun+verb,path=table.jsonl")
    assert config.input.source_options.negative_kinds_column == "negative_kinds"
    texts, rng = data.hard_texts(config)["negatives"], np.random.default_rng(0)
    held, kinds = ["a hog", "no dog", "a dog runs"], ["noun", "other", "verb"]
    assert sampling.draw(texts, "a dog", held, kinds, rng, None) == ["a hog", "", "a dog runs"]


@pytest.mark.parametrize("kinds", ["swap+", "swap+noun+swap"])
def test_kinds_of_ce_clip_are_names_that_differ(kinds):
    with pytest.raises(ValueError, match=r"kinds are different names.* got kinds=swap"):
        ce_clip.get_config(f"data=coco,kinds={kinds},path=table.jsonl")
