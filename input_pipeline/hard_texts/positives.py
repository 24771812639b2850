"""Hard positives: name -> generator that makes them from a caption."""

from collections.abc import Callable

from input_pipeline.hard_texts import replace_swap
from input_pipeline.hard_texts.generator import Generator
from input_pipeline.scenes import generators as scenes

POSITIVES: dict[str, Callable[..., Generator]] = {
    "replace": replace_swap.Replace,
    "swap": replace_swap.Swap,
    **scenes.SCENES_POSITIVES,
}
