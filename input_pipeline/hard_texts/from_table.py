"""Hard texts that were made before and are now read from a table: `from_table`.

The table is JSONL, a caption per line: {"caption": ..., "negatives": [...], "positives": [...]},
and for captions of scenes "scene": `key_of` of the scene graph, since their hard texts depend on
it. Other columns are ignored. `hard_texts --balance` writes such tables, with the kind of each text
in "negative_kinds" or "positive_kinds". `from_table:KIND` reads the texts of that kind alone.
"""

import collections
import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vlc_jax.input_pipeline.hard_texts import edit
from vlc_jax.input_pipeline.hard_texts.generator import SceneGraph
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import tables


class FromTable:
    """The texts of a table for a caption, in random order; a caption without a row has none.

    side: the column, "negatives" or "positives".   kind: of the texts; "": all of them. `version`
    is a hash of the file's content, and the kind.

    Raises ValueError if there is no file, DataError for a row that is not as above.
    """

    name = "from_table"

    def __init__(self, side: str, path: str, kind: str = "") -> None:
        if not Path(path).is_file():
            raise ValueError(
                f"from_table: no file {path!r}; write one with vlc-jax hard_texts --balance"
            )
        table = tables.open_table(Path(path))
        self.version = table.digest[:16] + (f"-{kind}" if kind else "")
        self._texts: dict[tuple[str, str], list[str]] = collections.defaultdict(list)
        for number in range(len(table)):
            row, where = table[number], table.name(number)
            caption, texts, scene = row.get("caption"), row.get(side, []), row.get("scene", "")
            for name, value in (("caption", caption), ("scene", scene)):
                if not isinstance(value, str):
                    raise DataError(f"{where}: {name} is one text per row; got {value!r:.80}")
            if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
                raise DataError(f"{where}: {side} is a list of texts; got {texts!r:.80}")
            if kind:
                column = f"{side.removesuffix('s')}_kinds"
                kinds = row.get(column, [])
                if not isinstance(kinds, list) or len(kinds) != len(texts):
                    raise DataError(
                        f"{where}: {column} has a kind for each text; got {kinds!r:.80}"
                    )
                texts = [text for text, its in zip(texts, kinds, strict=True) if its == kind]
            self._texts[caption.strip(), scene] += texts
        if not any(self._texts.values()):
            raise DataError(f"{path} holds no {side}" + (f" of the kind {kind!r}" if kind else ""))
        self._texts.default_factory = None  # pickled to workers, and read only

    def __call__(
        self, caption: str, rng: np.random.Generator, count: int, scene: SceneGraph | None = None
    ) -> Sequence[str]:
        key = (caption.strip(), "" if scene is None else key_of(scene))
        return edit.choose(rng, edit.distinct(self._texts.get(key, ()), caption), count)


def key_of(scene: SceneGraph) -> str:
    """The column "scene" of a scene graph (`record.meta["scene"]`)."""
    text = json.dumps(scene, sort_keys=True)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()
