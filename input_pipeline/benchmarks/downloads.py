"""Addresses from which files of published sets may be fetched (downloads.csv).

Files of GitHub are of one commit, with git's hash of their content; the hub lists hashes of its own
files. All are served by the owners of the sets or of their images.
"""

import csv
from pathlib import Path
from typing import NamedTuple


class Download(NamedTuple):
    """A file at an address, or the files of a folder of the hub.

    url: http(s)://, or hf://datasets/...
    to: path in ROOT of the file, of the folder of the hub's files, or of the one that an archive
      fills.   digest: sha256 or git's sha1; "": not known.
    images: folder in ROOT by which a reader names a missing image of it; "": `to`.
    """

    url: str
    to: str
    is_archive: bool = False
    digest: str = ""
    images: str = ""


def _read() -> dict[str, tuple[Download, ...]]:
    """Set -> its downloads in `downloads.csv`, where a row names all sets that need its file."""
    downloads: dict[str, tuple[Download, ...]] = {}
    with Path(__file__).with_suffix(".csv").open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            names, is_archive = row.pop("sets").split(), row["url"].endswith(".zip")
            for name in names:
                downloads[name] = (*downloads.get(name, ()), Download(**row, is_archive=is_archive))
    return downloads


DOWNLOADS = _read()
