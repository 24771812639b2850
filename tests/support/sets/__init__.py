"""Published evaluation sets in miniature: their authors' files and folders, with our own contents.

`WRITERS` has the function `write` of each module of this folder; it writes the files that the
module of input_pipeline/benchmarks of the same name reads below a folder, the ROOT of the readers.
"""

import importlib
from collections.abc import Callable
from pathlib import Path

_NAMES = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
WRITERS: dict[str, Callable[[Path], None]] = {
    name: module.write
    for name in _NAMES
    if hasattr(module := importlib.import_module(f"{__name__}.{name}"), "write")
}


def options(name: str, root: Path) -> dict[str, object]:
    """What a reader needs beside its root to read the set in miniature."""
    if name.endswith("_order"):
        return {"root": root, "tagger": f"precomputed:{root / 'tags.jsonl'}"}
    return {"root": root}


def write_all(root: Path) -> Path:
    """Writes every set; returns the folder."""
    for write in WRITERS.values():
        write(root)
    return root
