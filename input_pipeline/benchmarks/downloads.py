"""Addresses from which files of published sets may be fetched, and what to do for the others.

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
_DOCCI = "https://storage.googleapis.com/docci/data"
_DRIVE = "Google Drive asks each visitor; the links are in the README of"
# What no address gives, for sets that are not whole without it.
BY_HAND: dict[str, str] = {
    **dict.fromkeys(
        ("vg_relation", "vg_attribution"),
        "annotations and vgr_vga_images.zip: github.com/mertyg/vision-language-models-are-bows "
        "fetches them with gdown from Google Drive (dataset_zoo/aro_datasets.py names the ids)",
    ),
    "swap": "images: those of vg_relation, vgr_vga_images.zip of "
    "github.com/mertyg/vision-language-models-are-bows on Google Drive",
    **dict.fromkeys(
        ("flickr30k_order", "flickr30k_retrieval"),
        "images: their owner sends the link after the form at "
        "shannon.cs.illinois.edu/DenotationGraph",
    ),
    "bla": f"{_DRIVE} github.com/shin-ee-chen/BLA",
    "clevr_bind": "the README of github.com/marthaflinderslewis/clip-binding says how it is made",
    "docci": f"images: {_DOCCI}/docci_images.tar.gz (7.6 GB), unpacked into ROOT/docci",
    "eqben": "dataset.py of github.com/linzhiqiu/t2v_metrics names the archive on Google Drive",
    **dict.fromkeys(("eqben_subset", "eqben_full"), f"{_DRIVE} github.com/Wangt-CN/EqBen"),
    "ncd_squares": f"{_DRIVE} github.com/Raphoo/DCSM_Ideal_CLIP",
    "negbench": "annotations: datasets.md of github.com/m1k2zoo/negbench; images of VOC 2007: "
    "host.robots.ox.ac.uk/pascal/VOC",
    "negbench_retrieval": "annotations: datasets.md of github.com/m1k2zoo/negbench",
    "reporting_bias": "clone github.com/amitakamath/reporting_bias into ROOT: it has the images",
    **dict.fromkeys(
        ("coco_spatial_one", "coco_spatial_two", "gqa_spatial_one", "gqa_spatial_two"),
        f"annotations: {_DRIVE} github.com/amitakamath/whatsup_vlms",
    ),
    **dict.fromkeys(
        ("whatsup_a", "whatsup_b", "whatsup_a_two_way", "whatsup_b_two_way"),
        f"{_DRIVE} github.com/amitakamath/whatsup_vlms",
    ),
    "svo_probes": "images: each at its own address, pos_url and neg_url in svo_probes.csv",
    "urban1k": "the archive of huggingface.co/datasets/BeichenZhang/Urban1k, unpacked into ROOT",
    "valse": "images of SWiG, Visual7W and VisDial: from their sites, after their terms",
    "vl_checklist": "annotations: copy data/ of github.com/om-ai-lab/VL-CheckList; images of HAKE "
    "and SWiG: DATASETS.md there",
    "winoground": "gated: accept the terms at huggingface.co/datasets/facebook/winoground, then "
    "set HF_TOKEN or run hf auth login",
}
