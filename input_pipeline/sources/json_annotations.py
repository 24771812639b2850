"""JSON annotation files: COCO captions, Karpathy's splits, and descriptions of all others.

A row is a dict with `id`, `image` (a file name), `caption` (a list) and, where the document has
it, `split`.
"""

import collections
import json
import logging
import os
import re
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.stores import text_file

_FOLDER = re.compile(r"(train|val)20\d\d")  # of COCO's images
_MAX_LISTED = 8  # names in a message


def load(path: Path) -> Any:
    """Loads a JSON document. Raises ValueError for other files, DataError for a damaged one."""
    with path.open("rb") as file:
        start = text_file.decode(file.read(200), path, errors="replace").strip()
    # before parsing: a large archive named by mistake is refused by its first bytes
    if start and start[0] not in "[{":
        raise ValueError(f"{path} is not JSON; it begins with {start.partition(chr(10))[0][:80]!r}")
    try:
        return parse(text_file.read(path))
    except (ValueError, RecursionError) as error:
        raise DataError(
            f"{path} is not JSON: {error}; is it cut short, or one object per line (.jsonl)?"
        ) from error


def parse(text: str) -> Any:
    """Parses a JSON text. Raises ValueError for a name that an object has twice, too."""
    return _STRICT.decode(text)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"an object has {twice!r} twice")
    return document


_STRICT = json.JSONDecoder(object_pairs_hook=_object)


def describe(document: Any) -> str:
    """Description of a document for messages, with the source that reads it if there is one."""
    if isinstance(document, list):
        first = document[0] if document else None
        if not isinstance(first, dict):
            return f"a list of {len(document):,} entries that are no objects"
        if "conversations" in first:
            return "a list of LLaVA conversations (vlc-jax prepare llava)"
        fields = f"a list of {len(document):,} objects with the fields {list(first)[:_MAX_LISTED]}"
        reader = " (vlc-jax prepare --source records)"
        return fields + (reader if {"image", "caption"} <= first.keys() else "")
    if not isinstance(document, dict):
        return f"a {type(document).__name__}"
    if is_karpathy(document):
        name = document.get("dataset", "an unnamed dataset")
        reader = f" (vlc-jax prepare {name})" if name in ("coco", "flickr30k") else ""
        return f"Karpathy's split of {name}{reader}"
    if is_coco_captions(document):
        return "COCO captions (vlc-jax prepare coco)"
    if "annotations" in document:
        fields = list(_first(document["annotations"]))[:_MAX_LISTED]
        return f"annotations with the fields {fields}, none of them a caption"
    if isinstance(entry := next(iter(document.values()), None), dict):
        fields = list(entry)[:_MAX_LISTED]
        return f"{len(document):,} numbered or named objects with the fields {fields}"
    return f"an object with the keys {list(document)[:_MAX_LISTED]}"


def is_coco_captions(document: Any) -> bool:
    """True if a document is COCO captions: `images`, and `annotations` some of which have a caption
    (none need be there)."""
    if not isinstance(document, dict) or not {"images", "annotations"} <= document.keys():
        return False
    entries = document["annotations"]
    return not entries or (isinstance(entries, list) and any(map(_has_caption, entries)))


def is_karpathy(document: Any) -> bool:
    """True if a document is Karpathy's JSON: `images`, each with its `sentences`."""
    return isinstance(document, dict) and "sentences" in _first(document.get("images"))


def coco_rows(path: Path, document: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of COCO captions: one per captioned image, with all its captions.

    Boxes are not read. Annotations without a caption but with a box, as in a file that joins
    captions and instances, are left out. Raises DataError.
    """
    captions: dict[Any, list[str]] = collections.defaultdict(list)
    try:
        boxes = sum("bbox" in annotation for annotation in document["annotations"])
        captioned = captioned_annotations(document)
        for annotation in captioned:
            captions[annotation["image_id"]].append(annotation["caption"])
        rows = [
            {"id": str(image["id"]), "image": image["file_name"]}
            | {"caption": captions.pop(image["id"])}
            | ({"split": image["split"]} if "split" in image else {})
            for image in document["images"]
            if image["id"] in captions
        ]
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} is not COCO captions: an entry lacks {error}") from error
    if strange := next((row for row in rows if not isinstance(row["image"], str)), None):
        raise DataError(f"{path}: image {strange['id']} has the file name {strange['image']!r:.80}")
    if captions:
        raise DataError(
            f"{path}: {len(captions)} captioned image ids are not among `images` (or are there "
            f"twice), the first is {next(iter(captions))}"
        )
    if boxes:
        logging.getLogger(__name__).warning(
            "%s: %d of %d annotations have a box, which is not read: every caption belongs to the "
            "whole image", path, boxes, len(document["annotations"]),
        )  # fmt: skip
    no_caption = len(document["annotations"]) - len(captioned)
    mention(path, no_caption, len(document["annotations"]), "annotations have no caption")
    left_out = len(document["images"]) - len(rows)
    mention(path, left_out, len(document["images"]), "images have no caption")
    return rows


def captioned_annotations(document: dict[str, Any]) -> list[dict[str, Any]]:
    """The annotations of COCO captions without those that only have a box."""
    return [each for each in document["annotations"] if _has_caption(each) or "bbox" not in each]


def coco_folders(path: Path, document: dict[str, Any]) -> dict[str, str]:
    """COCO's image folders: image id -> train2014, val2014, train2017 or val2017.

    Taken from the image's file name, its URL or the name of the annotation file, in this order;
    images for which none names a folder have no entry.
    """
    folders = {}
    for image in document["images"]:
        for text in (image.get("file_name"), image.get("coco_url"), path.name):
            if match := _FOLDER.search(str(text)):
                folders[str(image["id"])] = match.group()
                break
    return folders


def karpathy_rows(path: Path, document: dict[str, Any]) -> list[dict[str, Any]]:
    """Rows of Karpathy's JSON: one per image, with COCO's id or the file name without suffix."""
    try:
        return [
            {
                "id": str(image.get("cocoid", os.path.splitext(image["filename"])[0])),
                "image": os.path.join(image.get("filepath", ""), image["filename"]),
                "caption": [sentence["raw"] for sentence in image["sentences"]],
                "split": image["split"],
            }
            for image in document["images"]
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path} is not Karpathy's JSON: an image lacks {error}") from error


def mention(path: Path | str, left_out: int, total: int, reason: str) -> None:
    """Logs the number of entries of a file that are left out, and the reason."""
    if left_out:
        logging.getLogger(__name__).warning(
            "%s: %d of %d %s and are left out", path, left_out, total, reason
        )


def _has_caption(annotation: Any) -> bool:
    return isinstance(annotation, dict) and "caption" in annotation


def _first(entries: Any) -> dict[str, Any]:
    first = entries[0] if isinstance(entries, list) and entries else None
    return first if isinstance(first, dict) else {}
