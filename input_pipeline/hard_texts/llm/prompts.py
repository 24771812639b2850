"""The prompts of language models: the presets' are the files of preset_prompts.

A prompt is an instruction, examples as Input/Output pairs, the caption last. The structure of the
presets' follows the papers (cited in presets.py); words and examples are our own, so answers differ
from the papers', even with the same models.
"""

from pathlib import Path

from vlc_jax.input_pipeline.stores import text_file

PLACE = "{caption}"  # replaced by the caption


def text_of(name: str) -> str:
    """The prompt in preset_prompts/NAME.txt, without the line break at the end of the file."""
    path = Path(__file__).with_name("preset_prompts") / f"{name}.txt"
    return text_file.read(path).removesuffix("\n")


def fill(prompt: str, caption: str) -> str:
    """The prompt with the caption, whose white space becomes single spaces."""
    return prompt.replace(PLACE, " ".join(caption.split()))
