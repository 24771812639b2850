"""Winoground: two images and two captions of the same words in different order.

Thrush et al., "Winoground: Probing vision and language models for visio-linguistic
compositionality" (CVPR 2022); comparisons are strict, as in its code. Unverified: the set is gated
and was not available; names of files and fields are from public code. Three forms:

  data/examples.jsonl    of huggingface.co/datasets/facebook/winoground, with images.zip unpacked
                         to images/NAME.png
  metadata.csv           of github.com/linzhiqiu/t2v_metrics, with paths of images, and tags in an
                         examples.jsonl beside it
  *.parquet              with images, converted by Hugging Face
"""

from collections.abc import Iterator
from typing import Any

from vlc_jax.input_pipeline.benchmarks import fields, published
from vlc_jax.input_pipeline.case import Benchmark, Case
from vlc_jax.input_pipeline.record import DataError, ImageLike

_IMAGES, _CAPTIONS = ("image_0", "image_1"), ("caption_0", "caption_1")
_TAGS = {  # kind of group -> field
    "tag": "tag",
    "secondary_tag": "secondary_tag",
    "collapsed_tag": "collapsed_tag",  # Object, Relation, Both
    "main_predicates": "num_main_preds",
}
_HARD = "why_winoground_hard.json"


@published.reader
def winoground(files: published.Files) -> Benchmark:
    """400 cases: "some plants surrounding a lightbulb", "a lightbulb surrounding some plants".

    text_score, the headline, image_score and group_score, as in the paper.
    pair_accuracy/KIND=LABEL is the text score of a group; kinds are tag, secondary_tag,
    collapsed_tag and main_predicates. With why_winoground_hard.json of t2v_metrics (Diwan et al.,
    EMNLP 2022), each of its tags is a group, too: pair_accuracy/TAG=yes.
    """
    hard = files.json(_HARD) if files.has(_HARD) else {}
    if not isinstance(hard, dict):
        raise DataError(f"{files.folder / _HARD} is no object of id -> tags")

    def cases() -> Iterator[Case]:
        for number, (row, pair) in enumerate(_rows(files)):
            group = {
                kind: row[field]
                for kind, field in _TAGS.items()
                if row.get(field) not in (None, "")
            }
            # a kind per tag, since a case may have several tags
            if hard:
                group |= dict.fromkeys(hard.get(str(row["id"])) or ["NoTag"], "yes")
            captions = tuple(row[field] for field in _CAPTIONS)
            yield Case(published.case_id(number, row["id"]), pair, captions, group or None)

    summary = ("text_score", "image_score", "group_score")
    return files.benchmark(cases(), summary=summary)


def _rows(files: published.Files) -> Iterator[tuple[dict[str, Any], tuple[ImageLike, ImageLike]]]:
    """Yields (row, its two images) of whichever form is present."""
    official, names = files.file, dict.fromkeys(_IMAGES, fields.image_name)
    # the official form wins if several are there: the others were made from it
    if files.has("metadata.csv") and not files.has(official):
        tags = {}
        if files.has("examples.jsonl"):
            # only the official file has tags; metadata.csv has the same ids
            tags = {
                str(row["id"]): row
                for row in files.json_lines("examples.jsonl", id=fields.anything)
            }
        for row in files.table("metadata.csv", "id", *_CAPTIONS, **names):
            yield tags.get(row["id"], {}) | row, tuple(files.image(row[f]) for f in _IMAGES)
    elif files.has("**/*.parquet") and not files.has(official):
        others = {"id": fields.anything} | dict.fromkeys(_TAGS.values(), fields.optional)
        for packed in files.packed("**/*.parquet", *_CAPTIONS, **others):
            yield packed[2], published.row_images(packed, *_IMAGES)
    else:
        images = files.image_folder("images", "data/images")
        for row in files.json_lines(official, *_CAPTIONS, **names, id=fields.anything):
            yield row, tuple(files.image(f"{images}/{row[f]}.png") for f in _IMAGES)
