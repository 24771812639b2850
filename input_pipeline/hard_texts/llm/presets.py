"""Presets of texts by language models: prompt, maximal length, sampling, parser.

Kamath et al. 2024, "The Hard Positive Truth about Vision-Language Compositionality" (HP): replace,
swap, hp_*, replace_verb, replace_spatial. Doveh et al. 2023, "Teaching structured vision and
language concepts" (SVLC) and "Dense and aligned captions" (DAC). C2LIP and CS-CLIP: their code of
2026. If a paper does not give its sampling, its library's defaults apply.
"""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from vlc_jax.input_pipeline.hard_texts.llm import answers, prompts

# Captions for SWAP have fewer words, as in the paper.
_SWAP_WORDS = 15
# Llama 2's default sampling, which HP uses.
_LLAMA_2_CHAT = {"temperature": 0.6, "top_p": 0.9}
_GREEDY = {"temperature": 0.0}
# A base model would continue with another input.
_NEXT_INPUT = ("\nInput:",)


def _unfit(caption: str) -> str | None:
    return None if caption.strip() else "empty caption"


def _unfit_for_swap(caption: str) -> str | None:
    if not re.search(r"\band\b", caption, re.IGNORECASE):
        return 'no "and"'
    return None if len(caption.split()) < _SWAP_WORDS else f"{_SWAP_WORDS} words or more"


_PLACES = re.compile(
    r"\b(?:in|on|at|by|near|under|over|above|below|beneath|beside|behind|before|between|inside|"
    r"outside|within|across|against|along|around|atop|underneath|next to|in front of)\b",
    re.IGNORECASE,
)


def _unfit_for_spatial(caption: str) -> str | None:
    return None if _PLACES.search(caption) else "no preposition of place"


class Preset(NamedTuple):
    """A kind of text: prompt, sampling, and parser of answers; defaults: those of HP.

    about: paper, content of the text, and the config that reads it.
    sampling: further request fields.   stop: strings that end an answer in form "text".
    unfit: caption -> the reason why it gets no question, or None.
    lines: name of the file with one line per caption; None for presets with several texts.
    has_foils: whether texts have foils.
    """

    about: str
    prompt: str = ""
    max_tokens: int = 30
    sampling: Mapping[str, float] = _LLAMA_2_CHAT
    stop: tuple[str, ...] = ("\n",)
    read: Callable[[answers.Answer, str], answers.Parsed] = answers.read_caption
    unfit: Callable[[str], str | None] = _unfit
    lines: str | None = "replace_hp.jsonl"
    has_foils: bool = False


_REPLACE_OF = "configs/hp_hn.py:data=coco,replace_hp=FILE"
_SWAP_OF = "configs/hp_hn.py:data=coco,swap_hp=FILE"

_PRESETS = {
    "replace": Preset(f"HP: one word exchanged for a synonym; five examples; {_REPLACE_OF}"),
    "swap": Preset(
        f'HP: the sides of "and" exchanged; five examples, more instruction; {_SWAP_OF}',
        max_tokens=20,
        unfit=_unfit_for_swap,
        lines="swap_hp.jsonl",
    ),
    "hp_replace": Preset(
        f"HP, appendix C.1: as replace, one instruction and no example; {_REPLACE_OF}"
    ),
    "hp_swap": Preset(
        f"HP, appendix C.1: as swap, its five kinds of example; {_SWAP_OF}",
        max_tokens=20,
        unfit=_unfit_for_swap,
        lines="swap_hp.jsonl",
    ),
    "replace_verb": Preset(
        f"HP's code: a verb exchanged for a synonym; one example; {_REPLACE_OF}"
    ),
    "replace_spatial": Preset(
        f"HP's code: a preposition of place exchanged; one example; {_REPLACE_OF}",
        unfit=_unfit_for_spatial,
    ),
    "svlc_paraphrase": Preset(
        "SVLC+Pos: the caption in another way; four examples; "
        "configs/svlc_pos.py:data=coco,path=TABLE",
        max_tokens=60,
        sampling=_GREEDY,
        lines=None,
    ),
    "dac_dense": Preset(
        "DAC-LLM: ten sentences on what may be seen; three examples; "
        "configs/dac.py:data=coco,path=TABLE",
        max_tokens=400,
        # do_sample of transformers' pipeline
        sampling={"temperature": 1.0, "top_p": 1.0},
        stop=_NEXT_INPUT,
        read=answers.read_sentences,
        lines=None,
    ),
    "c2lip_phrases": Preset(
        "C2LIP: the noun phrases of the main things; one example; "
        "configs/c2lip.py:data=coco,phrases=table,path=TABLE",
        max_tokens=100,
        sampling=_GREEDY,
        stop=_NEXT_INPUT,
        read=answers.read_phrases,
        lines=None,
    ),
    "csclip_units": Preset(
        "CS-CLIP: entities and relations, each with a foil; three examples; columns positives and "
        "negatives of TABLE",
        max_tokens=400,
        sampling={"temperature": 0.3},
        stop=_NEXT_INPUT,
        read=answers.read_units,
        lines=None,
        has_foils=True,
    ),
}
# each with its prompt
PRESETS = {name: row._replace(prompt=prompts.text_of(name)) for name, row in _PRESETS.items()}


def listing() -> str:
    """One line per preset, for --help."""
    width = max(map(len, PRESETS)) + 2
    return "\n".join(f"  {name:{width}}{preset.about}" for name, preset in PRESETS.items())
