"""Negation without training: what a text negates is taken out of its embedding.

    e' = e - strength ((e.n / n.n) n - a),    then unit length

e is the embedding of the text, n that of the negated phrase, found by rules, and a the mean
embedding of some neutral words ("Seeing What's Not There: Negation Understanding Needs More Than
Training", ICLR 2026, equation 2). The authors chose the strength on 5 % of NegBench's questions on
COCO: 1.9 for CLIP, 0.3 for a NegCLIP trained on negations. They published no code: the rules here
are ours, made after their description, and so are the last two neutral words.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vlc_jax.errors import UsageError, known
from vlc_jax.evaluators.scorer import Scorer
from vlc_jax.evaluators.vectors import unit
from vlc_jax.input_pipeline.record import Caption
from vlc_jax.types import TextFeatures

_NOT = r"(?:\bnot\b|n't\b)"
_BE = r"\b(?:is|are|was|were)"
# "a dog is missing", "a dog isn't visible": the phrase stands before
_AFTER = re.compile(
    rf"{_BE} (?:absent|missing|lacking|nowhere)\b|"
    r"\b(?:can(?:not|'t| not)|could(?:n't| not)) be (?:seen|found|made out)\b|"
    rf"{_BE} ?{_NOT} (?:\w+ly )?(?:present|visible|there|here|seen|shown|pictured|depicted|included"
    r"|featured|in (?:this|the|sight|view))\b"
)
# "no dog", "without a dog", "does not have a dog": the phrase follows
_BEFORE = re.compile(
    r"\b(?:without|(?:devoid|empty|free|absence|lack|none) of|lacks|lacking)\b|"
    r"\b(?:neither|nor|no|never)\b|"
    rf"(?:\bcan)?{_NOT}(?: (?:have|has|contain|include|show|feature|depict|display)\b)?|\bcannot\b"
)
# negations of nothing in the image
_NO_CUE = re.compile(
    rf"\bno (?:longer|doubt|matter)\b|\bwith (?:and|or) without\b|{_NOT} (?:only|just)\b"
)
_CUE = re.compile(f"(?P<none>{_NO_CUE.pattern})|(?P<after>{_AFTER.pattern})|{_BEFORE.pattern}")
_CLAUSE = re.compile(
    r"[,.;:!?]|\b(?:but|although|though|however|nevertheless|yet|while|whereas)\b"
    # "no dog and a cat": another article begins what is there; "no dogs and cats" negates both
    r"|\b(?:and|with)(?= (?:a|an|the|some|one|two)\b)"
    # "has no hat and wears a coat": so does a verb of the same subject
    r"|\band(?= (?:is|are|was|were|has|have|wears|holds|carries|sits|stands|lies|rides)\b)"
)
# said of the picture, not of the thing: "there is no dog in this image"
_OF_PICTURE = re.compile(
    r"^(?:there (?:is|are) |any )|"
    r"(?: (?:is|are|(?:can|could) be))?"
    r"(?: (?:present|visible|shown|seen|found|in sight|in view|to be seen))?"
    r"(?: in (?:this|the) (?:image|picture|photo))?$"
)


class Negation(NamedTuple):
    """Options of the correction.

    strength: factor of the correction; 0 changes nothing but the length.
    anchor: neutral words; without one nothing is added in the place of what is taken out.
    phrase: the text that is embedded for a negated phrase, in the place of {}.
    """

    strength: float = 1.9
    anchor: tuple[str, ...] = ("neutral", "balanced", "unbiased", "fair")
    phrase: str = "{}"


def options(value: Any) -> Negation | None:
    """The option `negation`: True, a mapping of fields of `Negation`, or False for none.

    Raises UsageError for anything else.
    """
    if value is None or isinstance(value, bool):
        return Negation() if value else None
    if not isinstance(value, Mapping):
        raise UsageError(f"negation is True, or some of {Negation._fields} as dict; got {value!r}")
    for name in value:
        known("option of negation", name, Negation._fields)
    how = Negation(**value)
    is_number = isinstance(how.strength, int | float) and not isinstance(how.strength, bool)
    if not is_number or not 0 <= how.strength < np.inf:
        raise UsageError(f"negation.strength is a number from 0 on; got {how.strength!r}")
    if isinstance(how.anchor, str) or not all(isinstance(word, str) for word in how.anchor):
        raise UsageError(f"negation.anchor is a list of words; got {how.anchor!r}")
    if not isinstance(how.phrase, str) or "{}" not in how.phrase:
        raise UsageError(f"negation.phrase has {{}} in the place of the phrase; got {how.phrase!r}")
    return how._replace(strength=float(how.strength), anchor=tuple(how.anchor))


def phrase(text: str) -> str:
    """The negated phrase of a text, several joined by "and"; "" if the text negates nothing.

    "a dog and no cat" -> "cat"; "a man is not wearing a hat, but a tie" -> "wearing a hat". Two
    negations in a row cancel ("not without a hat").
    """
    lower = text.lower().replace("’", "'").replace(" n't", "n't")
    found, cues = list[str](), list(_CUE.finditer(lower))
    for k, cue in enumerate(cues):
        if cue["none"]:
            continue
        if cue["after"]:
            start = max([m.end() for m in _CLAUSE.finditer(lower, 0, cue.start())], default=0)
            scope = lower[start : cue.start()]
        else:
            stop = cues[k + 1].start() if k + 1 < len(cues) else len(lower)
            end = _CLAUSE.search(lower, cue.end(), stop)
            scope = lower[cue.end() : end.start() if end else stop]
        found.append(_OF_PICTURE.sub("", re.sub(r"^\W+|\W+$|\W+(?:and|or)\W*$", "", scope)).strip())
    if any(not each for each in found[:-1]):
        return ""  # a negation of a negation
    return " and ".join(filter(None, found))


def texts(of: Iterable[Caption], how: Negation) -> list[str]:
    """The texts that the correction of others needs: their phrases, and the neutral words."""
    found = [phrase(str(text)) for text in of]
    phrases = [how.phrase.replace("{}", each) for each in dict.fromkeys(filter(None, found))]
    return [*phrases, *how.anchor] if phrases else []


def corrected(
    text: Float[np.ndarray, "texts embed"],
    negated: Float[np.ndarray, "texts embed"],
    anchor: Float[np.ndarray, " embed"],
    strength: float,
) -> Float[np.ndarray, "texts embed"]:
    """Embeddings without the part of each that points where its negated phrase does.

    The formula of this module, float32, of unit length.
    """
    shares = np.sum(text * negated, axis=1) / np.maximum(np.sum(negated * negated, axis=1), 1e-12)
    taken = shares[:, None] * negated
    return unit(text - strength * (taken - anchor)).astype(np.float32)


def correcting(scorer: Scorer, how: Negation) -> Scorer:
    """A Scorer with corrected embeddings of texts that negate something.

    Others keep theirs bit for bit. Raises UsageError for a model whose scores are no dot products.
    """
    scorer.abilities.require("is_cosine")

    def embed_texts(captions: Sequence[Caption]) -> TextFeatures:
        features = scorer.embed_texts(captions)
        phrases = [phrase(str(caption)) for caption in captions]
        rows = np.flatnonzero(phrases)
        if not rows.size:
            return features
        # without repetitions: equal phrases must give equal bits, so that equal texts tie
        needed = texts(captions, how)
        vectors = scorer.embed_texts(needed).pooled
        row_of = {text: row for row, text in enumerate(needed)}
        negated = vectors[[row_of[how.phrase.replace("{}", phrases[row])] for row in rows]]
        anchors = vectors[len(needed) - len(how.anchor) :]
        anchor = anchors.mean(axis=0) if how.anchor else np.zeros_like(vectors[0])
        pooled = np.array(features.pooled)
        pooled[rows] = corrected(pooled[rows], negated, anchor, how.strength)
        return features._replace(pooled=pooled)

    return scorer._replace(embed_texts=embed_texts)
