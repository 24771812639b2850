"""The record of a method: what docs, studies and tests say about it.

Its config says how it trains; vlc_jax/report/published/values.csv has the numbers of its paper.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

L14, SIGLIP = "CLIP ViT-L/14-336", "SigLIP ViT-L/16-384"
FINETUNED = {"finetuning": "", "left/right negatives": "negatives=leftright"}  # rows -> argument
OF_1280 = "--config.model.image={'projection': 1280}"  # LLM2CLIP's image tower
# base and control of a head: the cosine of the same frozen towers
ON_FROZEN = {"base": "clip_mean", "control": "clip_mean"}


class Row(NamedTuple):
    """A model of a paper's table, or one of our own beside it, and the run that makes it.

    model: in values.csv; "" for a run that others start from, or for a row of our own.
    run: name of the run, one of --rows of studies/papers.py.
    config: NAME:ARGUMENTS at full size.
    given: the files that it reads, a key of studies' GIVEN; "" for a row that no sweep makes.
    scenes: NAME:ARGUMENTS in miniature, of --miniature; "" without one.
    base: row that it starts from at full size; in miniature it is the scenes' CLIP.
    flags: further flags, with {NAME} for an argument of `given`. without: arguments of `given`
      that are not this row's. papers: beside those whose tables have the model's numbers.
    label: of a row of our own.
    """

    model: str
    run: str
    config: str
    given: str = ""
    scenes: str = ""
    base: str = ""
    flags: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    papers: tuple[str, ...] = ()
    label: str = ""


class Method(NamedTuple):
    """A method of a paper, in the words of its rows in the tables of docs.

    config: short name. loss: its losses or head. paper: first author and year.
    differs: how ours differs from the authors'.
    compared: with what its numbers are (libraries; torch, numpy: formulas written anew, also those
      of as_released), and the test below tests/.
    rows: published models that the config reproduces, and ours beside them.
    scenes: run of the study -> NAME:ARGUMENTS in miniature; the first one stands in the tables.
    base: run that those start from. control: run that their gain is measured against, by seed.
    section: heading in docs/methods.md, if it is not the title, or PAGE.md#ANCHOR.
    short: loss or head in README.md, whose rows are the methods that have it.
    """

    title: str
    config: str
    loss: str = ""
    paper: str = ""
    differs: str = ""
    compared: str = ""
    rows: tuple[Row, ...] = ()
    scenes: Mapping[str, str] = MappingProxyType({})
    base: str = "clip"
    control: str = ""
    section: str = ""
    short: str = ""


def joined(name: str, *arguments: str) -> str:
    """NAME:ARGUMENTS of those that are not empty."""
    return f"{name}:{','.join(filter(None, arguments))}"
