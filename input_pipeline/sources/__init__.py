"""Collections of records. Name -> source class; `make_source` builds one."""

import inspect
from typing import Any

from vlc_jax import errors
from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.record import Source
from vlc_jax.input_pipeline.sources.cc3m import Cc3mSource
from vlc_jax.input_pipeline.sources.class_folders import ClassFoldersSource
from vlc_jax.input_pipeline.sources.coco import CocoSource
from vlc_jax.input_pipeline.sources.conversation_records import LlavaSource
from vlc_jax.input_pipeline.sources.dac import DacSource
from vlc_jax.input_pipeline.sources.digits import DigitsSource
from vlc_jax.input_pipeline.sources.features import FeaturesSource
from vlc_jax.input_pipeline.sources.flickr30k import Flickr30kSource
from vlc_jax.input_pipeline.sources.img2dataset import Img2datasetSource
from vlc_jax.input_pipeline.sources.labelled import LabelledSource
from vlc_jax.input_pipeline.sources.mixture import make_shards
from vlc_jax.input_pipeline.sources.negclip import NegclipSource
from vlc_jax.input_pipeline.sources.opposites import DcsmSource
from vlc_jax.input_pipeline.sources.records import RecordsSource
from vlc_jax.input_pipeline.sources.region_captions import CrepeSource
from vlc_jax.input_pipeline.sources.scene_records import ScenesSource
from vlc_jax.input_pipeline.sources.side_by_side import SideBySideSource
from vlc_jax.input_pipeline.sources.sugarcrepe import SugarcrepeSource
from vlc_jax.input_pipeline.sources.tfds import TfdsSource

_OWN = {
    "cc3m": Cc3mSource,
    "class_folders": ClassFoldersSource,
    "coco": CocoSource,
    "crepe": CrepeSource,
    "dac": DacSource,
    "dcsm": DcsmSource,
    "digits": DigitsSource,
    "features": FeaturesSource,
    "flickr30k": Flickr30kSource,
    "img2dataset": Img2datasetSource,
    "labelled": LabelledSource,
    "llava": LlavaSource,
    "negclip": NegclipSource,
    "records": RecordsSource,
    "scenes": ScenesSource,
    "shards": make_shards,
    "side_by_side": SideBySideSource,
    "sugarcrepe": SugarcrepeSource,
    "tfds": TfdsSource,
}
SOURCES = errors.Table(
    "SOURCES",
    _OWN,
    "a class that takes split, with len, [] and fingerprint",
    lambda x: isinstance(x, type) and "split" in inspect.signature(x).parameters,
)


def make_source(name: str, split: str, **options: Any) -> Source:
    """A source of records by its name in `SOURCES`, with its own options.

    Raises ValueError for an unknown name, an unknown option or a value that does not fit, DataError
    for data that cannot be used.
    """
    return lookup.build("source", SOURCES, name, split=split, **options)
