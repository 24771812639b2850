"""What holds for every generator of the tables that needs no scene and no language model."""

import inspect
import pickle

import numpy as np
import pytest

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.hard_texts import sampling
from vlc_jax.input_pipeline.hard_texts.negatives import NEGATIVES
from vlc_jax.input_pipeline.hard_texts.positives import POSITIVES

CAPTIONS = [
    "A young boy quickly threw the red ball over a very tall fence.",
    "An old cat sat near a red apple.",
    "The big dog and the tiny cat isn't here",
    "a dog",
]
OTHERS = ["", " ", "...", "x", "a man on the left, a woman on the right", "日本 \n\t ½ \U0001f600"]
NEEDS_TAGS = (
    *("shuffle_nouns_and_adjectives", "shuffle_all_but_nouns_and_adjectives"),
    *("negclip", "noun_phrases"),
)
OURS = ("crepe", "scenes", "from_table", "noun_phrases")  # no authors' code to follow
MADE = [
    (table, name, mode)
    for table in (NEGATIVES, POSITIVES)
    for name in table
    if name not in ("svlc_fill_mask", "from_table") and not name.startswith("scenes_")
    for mode in ((None,) if name.startswith(OURS) else ("authors", "clean"))
]


@pytest.fixture(params=MADE, ids=lambda made: f"{made[1]}-{made[2]}")
def generator(request, tags):
    table, name, mode = request.param
    options = {"mode": mode} if mode else {}
    if name in NEEDS_TAGS:
        options["tagger"] = tags
    return lookup.build("generator", table, name, **options)


def captions_of(generator):
    return CAPTIONS if generator.name in NEEDS_TAGS else CAPTIONS + OTHERS


def made(generator, count, seed=0):
    rng = np.random.default_rng(seed)
    return [list(generator(caption, rng, count)) for caption in captions_of(generator)]


def test_generator_bears_the_name_of_its_table(generator):
    table = NEGATIVES if generator.name in NEGATIVES else POSITIVES
    assert generator.name in table
    assert generator.version


def test_a_generator_is_clean_unless_its_authors_are_asked_for():
    for table in (NEGATIVES, POSITIVES):
        for name, make in table.items():
            mode = inspect.signature(make).parameters.get("mode")
            is_ours = name.startswith(OURS)
            assert (mode is None) == is_ours, name
            assert is_ours or mode.default == "clean", name


def test_texts_depend_on_caption_and_draws_in_any_process(generator):
    first = made(generator, 3)
    there = pickle.loads(pickle.dumps(generator))
    assert made(there, 3) == first
    assert made(generator, 3) == first


def test_texts_are_different_and_at_most_as_many_as_asked(generator):
    for count in (1, 2, 5):
        for texts in made(generator, count):
            assert len(texts) <= count
            assert len(set(texts)) == len(texts)
            assert all(isinstance(text, str) for text in texts)
    assert any(texts for seed in range(8) for texts in made(generator, 2, seed)) or (
        generator.name in ("left_right", "swap")
    )


def test_no_text_is_the_caption_but_of_the_authors_shuffles(generator):
    for seed in range(5):
        for caption, texts in zip(captions_of(generator), made(generator, 4, seed), strict=True):
            assert caption not in texts or may_repeat(generator)


def may_repeat(generator):
    """ARO's own shuffles may leave a caption as it is."""
    return generator.name.startswith("shuffle") and "mode=authors" in generator.version


def test_generator_with_nothing_to_change_says_nothing(generator):
    caption = "a dog" if generator.name in NEEDS_TAGS else "zyx"
    is_silent = not may_repeat(generator) and generator.name != "crepe_negate"
    assert (list(generator(caption, np.random.default_rng(0), 3)) == []) == is_silent


@pytest.mark.parametrize(
    ("table", "name", "options", "said"),
    [
        (NEGATIVES, "svlc_rul", {}, "svlc_rule"),
        (NEGATIVES, "svlc_rule", {"class": ("color",)}, "classes"),
        (NEGATIVES, "svlc_rule", {"classes": ("colour",)}, "color"),
        (NEGATIVES, "svlc_rule", {"classes": ()}, "color, action"),
        (NEGATIVES, "svlc_rule", {"mode": "author"}, "authors"),
        (NEGATIVES, "left_right", {"keys": "word"}, "words"),
        (NEGATIVES, "left_right", {"mode": "cleen"}, "clean"),
        (NEGATIVES, "crepe_swap", {"classes": ("colors",)}, "color"),
        (NEGATIVES, "crepe_negate", {"negations": ("atribute",)}, "attribute"),
        (NEGATIVES, "shuffle_words", {"mode": "x"}, "authors"),
        (NEGATIVES, "shuffle_words", {"tagger": "scenes:scenes-mini"}, "mode"),
        (NEGATIVES, "negclip", {"tagger": "spacey:en"}, "spacy"),
        (NEGATIVES, "negclip", {"tagger": "scenes:scenes-mini", "verbs": "token"}, "tokens"),
        (NEGATIVES, "negclip", {"tagger": "scenes:scenes-mini", "conjuncts": "dro"}, "drop"),
        (NEGATIVES, "negclip", {"tagger": "scenes:scenes_mini"}, "scenes-mini"),
        (NEGATIVES, "negclip", {"tagger": "scenes"}, "scenes:scenes-mini"),
        (NEGATIVES, "svlc_fill_mask", {}, "model"),
        (POSITIVES, "replace", {"categories": ("colour",)}, "color"),
        (POSITIVES, "replace", {"mode": "strict"}, "clean, authors"),
        (POSITIVES, "swap", {"tagger": "scenes:scenes-mini", "mode": "authors"}, "needs no tagger"),
    ],
)
def test_wrong_options_are_refused_with_what_would_fit(table, name, options, said):
    with pytest.raises(ValueError, match=said):
        lookup.build("generator", table, name, **options)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("svlc_rule", {"classes": ["color", 3]}, "'classes' is a list of texts"),
        ("negclip", {"conjuncts": 1}, "'conjuncts' is a text or None; got 1"),
        ("svlc_fill_mask", {"model": "m", "top": "5"}, "'top' is an integer; got '5', str"),
        ("scenes_replace", {"roles": ["colour"]}, "'roles' is a table NAME: NUMBER or None"),
        ("scenes_replace", {"roles": {"colour": "1"}}, "'roles' is a table NAME: NUMBER"),
        ("scenes_swap", {"world_options": 3}, "'world_options' is a table NAME: VALUE or None"),
    ],
)
def test_an_option_of_another_type_is_refused_in_one_line(name, options, message):
    with pytest.raises(ValueError, match=message):
        sampling.make_hard_texts(
            "negatives", count=1, generators={name: 1.0}, options={name: options}
        )
