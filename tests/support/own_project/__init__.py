"""Copies of a project outside of this one, which no test may import from here."""

import shutil
from pathlib import Path


def write(folder: Path, plugins: str = "") -> Path:
    """The project in `folder`, installed as the package birdwatch 0.1 with these entry points."""
    shutil.copytree(Path(__file__).parent, folder, ignore=shutil.ignore_patterns("__*__*"))
    if plugins:
        install(folder, "birdwatch", plugins)
    return folder


def install(folder: Path, name: str, plugins: str) -> None:
    """Writes what pip would of an installed package: its name, version and entry points."""
    facts = folder / f"{name}-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")
    (facts / "entry_points.txt").write_text(f"[vlc_jax.plugins]\n{plugins}\n")
