"""Installed packages with entry points of vlc_jax.plugins."""

from pathlib import Path


def install(folder: Path, module: str, version: str = "0.1") -> None:
    """Writes what pip does of a package `own` whose plug-in is a module in the same folder."""
    facts = folder / f"own-{version}.dist-info"
    facts.mkdir()
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: own\nVersion: {version}\n",
        "top_level.txt": module.partition(".")[0],
        "entry_points.txt": f"[vlc_jax.plugins]\nown = {module}\n",
    }
    for name, text in files.items():
        (facts / name).write_text(text)
