"""Hard positives: name -> generator that makes them from a caption."""

from collections.abc import Callable

from input_pipeline.scenes import generators as scenes
from input_pipeline.text import hard_positives
from input_pipeline.text.generator import Generator

POSITIVES: dict[str, Callable[..., Generator]] = {
    "replace": hard_positives.Replace,
    "swap": hard_positives.Swap,
    **scenes.SCENES_POSITIVES,
}
