"""Collections of records. Name -> source class; `input_pipeline.make_source` builds one."""

from collections.abc import Callable

from input_pipeline.record import Source
from input_pipeline.sources.digits import DigitsSource
from input_pipeline.sources.records import RecordsSource
from input_pipeline.sources.scenes import ScenesSource
from input_pipeline.sources.shards import ShardsSource
from input_pipeline.sources.tfds import TfdsSource

SOURCES: dict[str, Callable[..., Source]] = {
    "digits": DigitsSource,
    "records": RecordsSource,
    "scenes": ScenesSource,
    "shards": ShardsSource,
    "tfds": TfdsSource,
}
