"""Noun phrases of captions: as hard positives (`Phrases`), or one in a template in place of the
caption, "a picture of the brown dog." (`NounPhrases`).

The code of "Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder"
(ACL 2025; lst627/CLIP-Embeds) trains PACL and SPARC on the latter: half of the captions, drawn
again in each epoch. The words between noun phrases, such as spatial relations, are lost.
"""

from collections.abc import Sequence

import numpy as np

from vlc_jax.input_pipeline.hard_texts import edit
from vlc_jax.input_pipeline.hard_texts.generator import CaptionGenerator, Tagged

TEMPLATES = (
    "a picture of {}.",
    "itap of {}.",
    "a photograph of {}.",
    "this picture contains {}.",
    "a good photo of {}.",
)


class NounPhrases:
    """caption -> one of its noun phrases, lower-cased, in one of TEMPLATES; or the caption itself.

    share: probability of a noun phrase; a caption without noun phrases stays unchanged.
    tagger: finds the phrases (`taggers.make_tagger`); the authors': spacy:en_core_web_sm. Tagging
      takes milliseconds per caption; "precomputed:FILE" reads stored tags.
    Raises ValueError for a share outside (0, 1] and an unavailable tagger.
    """

    def __init__(self, share: float, tagger: str) -> None:
        from vlc_jax.input_pipeline.hard_texts import taggers

        if not 0 < share <= 1:
            raise ValueError(f"noun_phrases: share is a number from 0 to 1; got {share}")
        self._share, self._tagger = share, taggers.make_tagger(tagger)
        tags = f"{self._tagger.name}/{self._tagger.version}"
        self.version = edit.version("1", share=share, tagger=tags)

    def __call__(self, caption: str, rng: np.random.Generator) -> str:
        """Raises DataError for a caption that the tagger cannot tag."""
        if rng.random() >= self._share:
            return caption
        phrases = phrases_of(caption, self._tagger(caption))
        if not phrases:
            return caption
        phrase = phrases[int(rng.integers(len(phrases)))]
        return TEMPLATES[int(rng.integers(len(TEMPLATES)))].format(phrase)


class Phrases(CaptionGenerator):
    """Hard positives: the different noun phrases of the caption, lower-cased, in random order.

    C2LIP has them of a language model (the preset c2lip_phrases of `write_hard_texts`).
    tagger: as for NounPhrases. Raises ValueError for an unavailable tagger.
    """

    name = "noun_phrases"

    def __init__(self, tagger: str = "spacy:en_core_web_sm") -> None:
        from vlc_jax.input_pipeline.hard_texts import taggers

        self._tagger = taggers.make_tagger(tagger)
        self.version = edit.version("1", tagger=f"{self._tagger.name}/{self._tagger.version}")

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """Raises DataError for a caption that the tagger cannot tag."""
        phrases = phrases_of(caption, self._tagger(caption))
        return edit.choose(rng, edit.distinct(phrases, caption), count)


def phrases_of(caption: str, tagged: Tagged) -> list[str]:
    """The noun phrases of a tagged caption, lower-cased."""
    return [
        caption[tagged.tokens[first].start : tagged.tokens[stop - 1].stop].lower()
        for first, stop in tagged.noun_chunks
    ]
