"""Captions replaced by one of their noun phrases in a template: "a picture of the brown dog."

The code of "Exploring How Generative MLLMs Perceive More Than CLIP with the Same Vision Encoder"
(ACL 2025; lst627/CLIP-Embeds) trains PACL and SPARC on them: half of the captions, drawn again in
each epoch. The words between noun phrases, such as spatial relations, are lost.
"""

import numpy as np

from vlc_jax.input_pipeline.hard_texts import edit

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
        tagged = self._tagger(caption)
        if not tagged.noun_chunks:
            return caption
        first, stop = tagged.noun_chunks[int(rng.integers(len(tagged.noun_chunks)))]
        tokens = tagged.tokens
        phrase = caption[tokens[first].start : tokens[stop - 1].stop]
        return TEMPLATES[int(rng.integers(len(TEMPLATES)))].format(phrase.lower())
