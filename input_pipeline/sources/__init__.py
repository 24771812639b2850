"""Collections of records. Name -> source class; `input_pipeline.make_source` builds one."""

from collections.abc import Callable

from input_pipeline.record import Source
from input_pipeline.sources.cc3m import Cc3mSource
from input_pipeline.sources.class_folders import ClassFoldersSource
from input_pipeline.sources.coco import CocoSource
from input_pipeline.sources.crepe import CrepeSource
from input_pipeline.sources.digits import DigitsSource
from input_pipeline.sources.features import FeaturesSource
from input_pipeline.sources.flickr30k import Flickr30kSource
from input_pipeline.sources.img2dataset import Img2datasetSource
from input_pipeline.sources.llava import LlavaSource
from input_pipeline.sources.negclip import NegclipSource
from input_pipeline.sources.records import RecordsSource
from input_pipeline.sources.scenes import ScenesSource
from input_pipeline.sources.shards import ShardsSource
from input_pipeline.sources.sugarcrepe import SugarcrepeSource
from input_pipeline.sources.tfds import TfdsSource

SOURCES: dict[str, Callable[..., Source]] = {
    "cc3m": Cc3mSource,
    "class_folders": ClassFoldersSource,
    "coco": CocoSource,
    "crepe": CrepeSource,
    "digits": DigitsSource,
    "features": FeaturesSource,
    "flickr30k": Flickr30kSource,
    "img2dataset": Img2datasetSource,
    "llava": LlavaSource,
    "negclip": NegclipSource,
    "records": RecordsSource,
    "scenes": ScenesSource,
    "shards": ShardsSource,
    "sugarcrepe": SugarcrepeSource,
    "tfds": TfdsSource,
}
