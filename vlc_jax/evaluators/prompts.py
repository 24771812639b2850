"""Prompts of generative models: templates of checkpoints and the questions of spatial benchmarks.

Templates come from the checkpoints' code. Questions are from table 8 of "On Erroneous Agreements
of CLIP Image Embeddings" (2024) and, in style "vlm2vec", from the evaluation of VLM2Vec in the
code of "Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder"
(ACL 2025). For LLaMA-3-V and Phi-3-V the authors used the best of several unpublished wordings:
results of these models with our questions differ slightly from theirs.
"""

import hashlib
import re
from typing import NamedTuple

from vlc_jax.errors import UsageError, known
from vlc_jax.input_pipeline.case import Case
from vlc_jax.input_pipeline.record import DataError

IMAGE = "<image>"  # placeholder of the image in a prompt
# VQAScore is the probability of "Yes" after this question (Lin et al. 2024, arXiv:2404.01291); the
# wording is from "Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision
# Encoder" (ACL 2025).
VQASCORE = 'Does this figure show "{}"? Please answer yes or no.'
SYSTEM = (
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives "
    "helpful, detailed, and polite answers to the user's questions."
)


class Template(NamedTuple):
    """Prompt format of a checkpoint: `text` contains {question} once and <image> once.

    terminators: tokens that end an answer; scoring appends the first.
    separator: stands between the prompt and an answer to be scored.
    """

    text: str
    terminators: tuple[str, ...]
    notes: str = ""
    separator: str = " "


_VICUNA_TURN = f"USER: {IMAGE}\n{{question}} ASSISTANT:"
_LLAMA_3 = "<|start_header_id|>{}<|end_header_id|>\n\n"
TEMPLATES: dict[str, Template] = {
    "llava_hf": Template(
        _VICUNA_TURN, ("</s>",), "llava-hf checkpoints; no system text, as in the 2024 paper"
    ),
    "llava_v1": Template(
        f"{SYSTEM} {_VICUNA_TURN} ",
        ("</s>",),
        "LLaVA-1.5 under VQAScore; the trailing space is part of the released prompt and a token "
        "of its own only while no answer follows",
    ),
    "llama_3_v": Template(
        f"<|begin_of_text|>{_LLAMA_3.format('system')}{SYSTEM}<|eot_id|>"
        f"{_LLAMA_3.format('user')}{IMAGE}\n{{question}}<|eot_id|>{_LLAMA_3.format('assistant')}",
        ("<|eot_id|>", "<|end_of_text|>"),
        "the text starts with BOS and the tokenizer adds another: two, as in the released code",
    ),
    "phi_3_v": Template(
        "<|system|>\nYou are a helpful AI assistant.<|end|>\n<|user|>\n"
        f"{IMAGE}\n{{question}}<|end|>\n<|assistant|>\n",
        ("<|end|>",),
    ),
    "paligemma": Template(
        f"{IMAGE}<bos>{{question}}\n", ("<eos>",), "one question; the image comes before BOS"
    ),
    "instructblip": Template(
        f"{IMAGE}{{question}}", ("</s>",), "no words around a question; the image comes before BOS"
    ),
    "gemma_3": Template(
        f"<bos><start_of_turn>user\n\n\n<start_of_image>{IMAGE}<end_of_image>\n\n{{question}}"
        "<end_of_turn>\n<start_of_turn>model\n",
        ("<end_of_turn>", "<eos>"),
    ),
    "otter": Template(
        f"{IMAGE}User: {{question}} GPT:<answer>",
        ("<|endofchunk|>",),
        "of July 2023, with a space before the answer; a month later the authors' code left it out",
    ),
    "open_flamingo": Template(
        f"{IMAGE}Question:{{question}} Short answer:",
        ("<|endofchunk|>",),
        "the authors' prompt for VQA without examples",
        separator="",
    ),
}

# subset of a benchmark -> its two prepositions, in the order of the question
PAIRS = {
    "left_right": ("left", "right"),
    "on_under": ("on", "under"),
    "front_behind": ("front", "behind"),
    "top_bottom": ("top", "bottom"),
    "above_below": ("above", "below"),
}
_PHRASES = {
    "left": "to the left of",
    "right": "to the right of",
    "front": "in front of",
    "behind": "behind",
    "above": "above",
    "below": "below",
}
# GQA's captions of two objects: "to the behind of"; their questions keep these words.
_TO_THE = {name: f"to the {name} of" for name in ("left", "right", "front", "behind")}
_TO_THE |= {name: f"to the {name} of" for name in ("top", "bottom")}
_WHATSUP = {
    "left_right": (
        "Is the {first} to the left of or to the right of the {second}?",
        " Answer left or right.",
    ),
    "on_under": ("Is the {first} on or under the {second}?", " Choose from the two options."),
    "front_behind": (
        "Is the {first} in front of or behind the {second}?",
        " Answer front or behind.",
    ),
    # The paper has none for four captions: VLM2Vec's, with a suffix like the others; b is set B.
    "four_way": (
        "Is the {first} to the left of, to the right of, on, or under the {second}?",
        " Answer left, right, on or under.",
    ),
    "four_way_b": (
        "Is the {first} to the left of, to the right of, in front of, or behind the {second}?",
        " Answer left, right, front or behind.",
    ),
}
_WHATSUP_VLM2VEC = {
    "left_right": _WHATSUP["left_right"][0],
    "on_under": "Is the {first} at the bottom of the {second} or at the top of the {second}?",
    "front_behind": "Is the {first} in the back of the {second} or in the front of the {second}?",
    **{name: _WHATSUP[name][0] for name in ("four_way", "four_way_b")},
}
_SHORT = " Give a short answer."
STYLES = ("generate", "vlm2vec")


def multiple_choice_question(question: str, options: str) -> str:
    """MMVP's question with its options, "(a) Open (b) Closed", to be answered by a letter."""
    letter = "Answer with the option's letter from the given choices directly."
    return f"{question} {options}\n{letter}"


def is_swapped(example_id: str, seed: int) -> bool:
    """True for half of the examples; a function of the example's id and the seed."""
    # by the id alone, and not Python's hash, which differs from process to process
    return bool(hashlib.sha256(f"{seed}/{example_id}".encode()).digest()[0] & 1)


def question_of_case(case: Case, style: str = "generate", seed: int = 0) -> str:
    """Question for a case of What'sUp, COCO-spatial or GQA-spatial.

    The correct caption determines the form: with "A photo of" COCO or GQA, one object or two;
    without it What'sUp, two objects. The two prepositions of COCO and GQA are exchanged in half of
    the cases (`is_swapped`), What'sUp's never. Raises DataError for a caption of another form.
    """
    first, second = objects(case.captions[0])
    subset = case.group["subset"]
    if case.captions[0].lower().startswith("a photo of "):
        swap, is_gqa = is_swapped(case.id, seed), _is_gqa(case.captions[0])
        return photo_question(subset, first, second, swap=swap, style=style, is_gqa=is_gqa)
    # set A: on, under; set B: front, behind
    if len(case.captions) == 4:
        words = {word for caption in case.captions for word in caption.split()}
        subset = "four_way" if "under" in words else "four_way_b"
    return whatsup_question(subset, first, second, style)


def has_question(case: Case) -> bool:
    """True if `question_of_case` has a question; only GQA's captions have one for two objects on
    top of one another. Raises DataError for a caption of another form."""
    _, second = objects(case.captions[0])
    is_asked = case.group["subset"] != "top_bottom" or _is_gqa(case.captions[0])
    return second is None or is_asked


def whatsup_question(subset: str, first: str, second: str | None, style: str = "generate") -> str:
    """Question of What'sUp; the subset four_way is set A, four_way_b set B."""
    known("style of questions", style, STYLES)
    table = _WHATSUP_VLM2VEC if style == "vlm2vec" else {k: "".join(v) for k, v in _WHATSUP.items()}
    if subset not in table or second is None:
        raise UsageError(
            f"What'sUp in style {style!r} asks about two objects of {sorted(table)}; got "
            f"{subset!r}, {first!r} and {second!r}"
        )
    return table[subset].format(first=first, second=second)


def photo_question(
    subset: str,
    first: str,
    second: str | None,
    *,
    swap: bool = False,
    style: str = "generate",
    is_gqa: bool = False,
) -> str:
    """Question of COCO-spatial and GQA-spatial about one object (`second` None) or two.

    The article of the second object is always "a", as in the paper.
    is_gqa: two objects are "to the behind of" one another, as in GQA's captions, and not "behind".
    """
    known("style of questions", style, STYLES)
    a, b = PAIRS[known("subset", subset, PAIRS)][:: -1 if swap else 1]
    suffix = "" if style == "vlm2vec" else _SHORT
    if second is None:
        return f"Is the {first} on the {a} or on the {b}?{suffix}"
    phrases = _TO_THE if is_gqa else _PHRASES
    if not {a, b} <= phrases.keys():
        raise UsageError(f"two objects are {sorted(phrases)} of one another; got {a!r} and {b!r}")
    return f"Is the {first} {phrases[a]} a {second} or {phrases[b]} a {second}?{suffix}"


_ARTICLE = "(?:an? |the )?"
_TWO = re.compile(
    rf"^(?:a photo of )?{_ARTICLE}(.+?) "
    r"(?:(?:to|on) the (?:left|right|front|behind|top|bottom) of|in front of|in-front of|behind|on|"
    r"under|above|below) "
    rf"{_ARTICLE}(.+?)\.?$",
    re.IGNORECASE,
)
_ONE = re.compile(
    rf"^a photo of {_ARTICLE}(.+?) (?:on|to|at) the (?:left|right|top|bottom)\.?$", re.IGNORECASE
)


def _is_gqa(caption: str) -> bool:
    return any(f" {phrase} " in caption for phrase in _TO_THE.values())


def objects(caption: str) -> tuple[str, str | None]:
    """Objects of a spatial caption; the second is None if there is only one.

    Raises DataError for a caption of another form.
    """
    if match := _ONE.match(caption):
        return match[1], None
    if match := _TWO.match(caption):
        return match[1], match[2]
    raise DataError(
        f"no objects in {caption!r}: expected 'A mug to the left of a plate', 'A photo of a dog "
        "on the left' or alike"
    )
