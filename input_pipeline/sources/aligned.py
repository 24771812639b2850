"""Files of texts that belong to COCO's captions line by line, as published hard positives do."""

import collections
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from input_pipeline.record import DataError
from input_pipeline.sources.tables import sha256

NOTHING = "None"  # what a line says where a caption has no such text


def attach(
    rows: list[dict[str, Any]],
    annotations: Sequence[Mapping[str, Any]],
    side: str,
    files: Mapping[str, str | Path],
) -> dict[str, str]:
    """Adds `side` ("negatives", "positives") and `side_kinds` to the rows of COCO captions.

    annotations: those of the document, in its order. files: kind -> a file whose line k is a JSON
    string for annotation k, "None" where there is none. Returns path -> sha256 of the files.
    Raises ValueError for a missing file, DataError for a line that is no JSON string and for a file
    that is empty or of another length.
    """
    lines = {kind: read(Path(path), len(annotations)) for kind, path in files.items()}
    texts: dict[str, list[list[str]]] = collections.defaultdict(list)
    kinds: dict[str, list[list[str]]] = collections.defaultdict(list)
    for number, annotation in enumerate(annotations):
        held = {kind: column[number] for kind, column in lines.items() if column[number]}
        texts[str(annotation["image_id"])].append([*held.values()])
        kinds[str(annotation["image_id"])].append([*held])
    for row in rows:
        row |= {side: texts[row["id"]], f"{side}_kinds": kinds[row["id"]]}
    return {str(path): sha256(Path(path)) for path in files.values()}


def read(path: Path, count: int) -> list[str]:
    """The texts of a file, "" where there is none; `count` of them."""
    if not path.is_file():
        raise ValueError(f"no file {path}")
    content = path.read_bytes()
    if not content.strip():
        raise DataError(f"{path} is empty; a row for each of {count:,} captions is needed")
    lines = content.removesuffix(b"\n").split(b"\n")
    if len(lines) != count:
        raise DataError(
            f"{path} has {len(lines):,} rows, but there are {count:,} captions; row k belongs to "
            "the k-th annotation of the captions file, so both must be of the same version"
        )
    texts = []
    for number, line in enumerate(lines, start=1):
        try:
            text = json.loads(line)
        except ValueError as error:
            raise DataError(f"row {number} of {path} is not JSON: {error}") from error
        if not isinstance(text, str):
            raise DataError(f"row {number} of {path}: a row is a JSON string; got {text!r:.80}")
        texts.append("" if text == NOTHING else text.strip())
    return texts
