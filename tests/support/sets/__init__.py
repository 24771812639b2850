"""Published evaluation sets in miniature: their authors' files and folders, with our own contents.

`SETS` has each module of this folder; its function `write` writes the files below a folder, the
ROOT of the readers.
"""

import importlib
from pathlib import Path

_NAMES = sorted(path.stem for path in Path(__file__).parent.glob("[!_]*.py"))
_MODULES = [importlib.import_module(f"{__name__}.{name}") for name in _NAMES]
SETS = tuple(module for module in _MODULES if hasattr(module, "write"))


def options(name: str, root: Path) -> dict[str, object]:
    """What a reader needs beside its root to read the set in miniature."""
    if name.endswith("_order"):
        return {"root": root, "tagger": f"precomputed:{root / 'tags.jsonl'}"}
    return {"root": root}


def write_all(root: Path) -> Path:
    """Writes every set; returns the folder."""
    for each in SETS:
        each.write(root)
    return root
