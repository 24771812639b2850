"""ARO: Visual Genome Relation and Attribution, COCO-Order and Flickr30k-Order.

Yuksekgonul et al., "When and why vision-language models behave like bags-of-words" (ICLR 2023);
read like github.com/mertyg/vision-language-models-are-bows. Its argmax counts a tie as *wrong* in
Relation and Attribution, whose options are [false, true], and as correct in Order: `tie="strict"`
and `tie="first_index"` here.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.benchmarks.aro_symmetric_relations import SYMMETRIC_RELATIONS
from vlc_jax.input_pipeline.case import Average, Benchmark, Case
from vlc_jax.input_pipeline.hard_texts.negatives import NEGATIVES
from vlc_jax.input_pipeline.record import Crop
from vlc_jax.input_pipeline.sources import region_captions

# In the order of the options in the paper's code.
SHUFFLES = (
    "shuffle_nouns_and_adjectives",
    "shuffle_all_but_nouns_and_adjectives",
    "shuffle_within_trigrams",
    "shuffle_trigrams",
)
TAGGER = "spacy:en_core_web_sm"
# attribute pairs with fewer cases are not in the paper's mean
ATTRIBUTION_FLOOR = 25
BOX = ("bbox_x", "bbox_y", "bbox_w", "bbox_h")
BOXED = {"image_path": fields.image_name, **dict.fromkeys(BOX, fields.anything)}
# words per caption, BLIP's limit
MAX_WORDS = 30


@published.reader
def vg_relation(files: published.Files) -> Benchmark:
    """23,937 cases: an image cropped to a box and two captions, "the horse is eating the grass" and
    "the grass is eating the horse".

    accuracy_macro, the headline: mean over relations, without the 157 symmetric ones of the
    authors' notebook. accuracy_all_relations: mean over all relations. accuracy: over cases.
    """
    averages = {
        "macro": Average(("relation",), drop=SYMMETRIC_RELATIONS),
        "all_relations": Average(("relation",)),
    }
    rows = _boxed(files, relation_name=fields.text)
    cases = (
        boxed_case(files, files.file, n, row, {"relation": row["relation_name"]}) for n, row in rows
    )
    summary = ("accuracy_macro", "accuracy")
    return files.benchmark(cases, averages, summary=summary)


@published.reader
def vg_attribution(files: published.Files) -> Benchmark:
    """28,748 cases: an image cropped to a box and two captions, "the paved road and the white
    house" and "the white road and the paved house".

    accuracy_macro, the headline: mean over pairs of attributes with at least 25 cases.
    accuracy_all_attributes: mean over all pairs. accuracy: over cases.
    """
    averages = {
        "macro": Average(("attributes",), floor=ATTRIBUTION_FLOOR),
        "all_attributes": Average(("attributes",)),
    }
    rows = _boxed(files, attributes=fields.texts)
    cases = (
        boxed_case(files, files.file, n, row, {"attributes": "_".join(row["attributes"])})
        for n, row in rows
    )
    summary = ("accuracy_macro", "accuracy")
    return files.benchmark(cases, averages, summary=summary)


@published.reader
def coco_order(files: published.Files, seed: int = 1, tagger: str = TAGGER) -> Benchmark:
    """25,010 captions of COCO's Karpathy test split, each against four shuffles of its words.

    seed, tagger: as in `flickr30k_order`.
    """
    return _order(files, seed, tagger)


@published.reader
def flickr30k_order(files: published.Files, seed: int = 1, tagger: str = TAGGER) -> Benchmark:
    """5,000 captions of Flickr30k's Karpathy test split, each against four shuffles of its words.

    seed: of the shuffles; the authors average five unseeded runs.
    tagger: for the first two shuffles, KIND:ARGUMENT of hard_texts/taggers.py.
    """
    return _order(files, seed, tagger)


def _order(files: published.Files, seed: int, tagger: str) -> Benchmark:
    shuffles = [
        NEGATIVES[shuffle](mode="authors", **({"tagger": tagger} if k < 2 else {}))
        for k, shuffle in enumerate(SHUFFLES)
    ]

    def cases() -> Iterator[Case]:
        rows = karpathy_rows(files, files.file)
        captions = ((image, caption) for image, several in rows for caption in several)
        for number, (image, caption) in enumerate(captions):
            options = [caption]
            for k, shuffle in enumerate(shuffles):
                # One generator per case and shuffle: `count` does not change the shuffles.
                rng = np.random.default_rng((seed, number, k))
                # Without another order the option is the caption itself, a tie.
                options += list(shuffle(caption, rng, 1))[:1] or [caption]
            yield files.case(number, image, map(prepare_caption, options))

    # the shuffles' versions too: a new tagger draws other options from the same captions
    benchmark = files.benchmark(cases())
    versions = "/".join(str(shuffle.version) for shuffle in shuffles)
    return dataclasses.replace(benchmark, version=f"{benchmark.version}/{seed}/{versions}")


def karpathy_rows(files: published.Files, name: str) -> Iterator[tuple[str, list[str]]]:
    """Yields (image, its captions) of a Karpathy split in BLIP's JSON, [{image, caption: []}]."""
    for row in files.objects(name, image=fields.image_name, caption=fields.texts):
        yield row["image"], row["caption"]


def prepare_caption(caption: str, max_words: int = MAX_WORDS) -> str:
    """Preprocessing of ARO and BLIP: lower case, no . ! " ( ) * # : ; ~ and repeated spaces, at
    most `max_words` words."""
    spaced = caption.lower().translate(str.maketrans(dict.fromkeys('.!"()*#:;~', " ")))
    return " ".join(spaced.split()[:max_words])


def _boxed(files: published.Files, **group: published.Kind) -> Iterator[tuple[int, dict[str, Any]]]:
    captions = ("true_caption", "false_caption")
    yield from enumerate(files.objects(files.file, *captions, **BOXED, **group))


def boxed_case(
    files: published.Files,
    name: str,
    number: int,
    row: dict[str, Any],
    group: dict[str, str] | None = None,
    **meta: str,
) -> Case:
    """A case of the two captions of a row of the file `name`, and its image, cropped to a box."""
    region = region_captions.box(row, f"{files.folder / name}: case {number}", BOX)
    return Case(
        published.case_id(number, row["image_path"]),
        (Crop(files.image(row["image_path"]), region),),
        (row["true_caption"], row["false_caption"]),
        group,
        {**meta, "record": row["image_path"]},
    )
