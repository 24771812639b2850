"""Conversations about scenes, as LLaVA's training has them about photographs: [[question, answer],
[question, answer], ...], a turn for each caption.

question  the question that the caption answers (scenes/questions.py), with its short answer
presence  which of two shapes the picture has, "is there a square or a star"
colours   which of its first two objects has which colour, whatever the caption says of them
yes_no    does this figure show "..."? please answer yes or no: of the caption, or of one that is as
          likely without the picture and false; as often one as the other
object    the same question of one object: a shape that is there or is not, "a star", or one with
          its own colour or with that of the other object, "a red circle"

The caption of yes_no names an object that is there or is not ("and no star"), two colours or two
places that are exchanged or are not: whichever the caption allows, drawn uniformly.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from vlc_jax.input_pipeline.scenes import contrast, grammar, questions, words
from vlc_jax.input_pipeline.scenes.grammar import Caption, Phrase
from vlc_jax.input_pipeline.scenes.stream import Stream
from vlc_jax.input_pipeline.scenes.world import Scene, World

KINDS = ("caption", "question", "yes_no", "object", "presence", "colours")
SHOWS = 'Does this figure show "{}"? Please answer yes or no.'  # as VQAScore asks
_SAID = (SHOWS, "yes", "user assistant", "is the or and", questions.ANY)


def conversation(
    captions: Sequence[Caption], scene: Scene, stream: Stream, shares: Mapping[str, float]
) -> str:
    """The first caption alone, or a conversation in JSON with a turn about each of them.

    shares: of "caption" and of the kinds of turns; they sum to 1.
    """
    if stream.chance(shares.get("caption", 0.0)):
        return captions[0].text
    kinds = [kind for kind in shares if kind != "caption"]
    weights = np.array([shares[kind] for kind in kinds])
    drawn = [kinds[stream.weighted(weights / weights.sum())] for _ in captions]
    pairs = zip(drawn, captions, strict=True)
    return json.dumps([_turn(kind, caption, scene, stream) for kind, caption in pairs])


def vocabulary(world: World) -> tuple[str, ...]:
    """Every word of captions, questions and answers in lower case, sorted."""
    asked = {word.strip('"{}?.') for text in _SAID for word in text.lower().split()}
    return tuple(sorted({*words.vocabulary(world), *filter(None, asked)}))


def _turn(kind: str, caption: Caption, scene: Scene, stream: Stream) -> tuple[str, str]:
    if kind == "colours":
        phrases = tuple(Phrase(each.shape, each.colour) for each in scene.objects[:2])
        kind, caption = "question", Caption("list", phrases)
    if kind == "question":
        return questions.question(caption), questions.answer(caption)
    if kind == "presence":
        there = stream.choice(scene.objects).shape
        return questions.presence(there, stream.choice(grammar.absent_shapes(scene))), there
    is_false = stream.below(2)
    pairs = list(_statements(caption, scene, stream)) if kind == "yes_no" else []
    # of a caption in which nothing can be exchanged, replaced or denied, one of its objects
    said = stream.choice(pairs or list(_objects(caption, scene, stream)))[is_false]
    return SHOWS.replace("{}", said.text), ("yes", "no")[is_false]


def _statements(
    caption: Caption, scene: Scene, stream: Stream
) -> Iterator[tuple[Caption, Caption]]:
    """Pairs of a true caption of the scene and a false one."""
    for wrong in (
        contrast.swap(caption, scene, "colour"),
        contrast.reverse(caption, scene),
        contrast.replace(caption, scene, "shape", stream, "base_words"),
    ):
        if wrong is not None:
            yield caption, wrong
    present, absent = _shapes(scene, stream)
    others = [phrase for phrase in caption.phrases if phrase.shape != present.shape]
    if others and caption.kind in ("list", "relation"):
        first = stream.choice(others)
        yield tuple(
            Caption("negation", (first, denied), "", caption.prefix) for denied in (absent, present)
        )


def _objects(caption: Caption, scene: Scene, stream: Stream) -> Iterator[tuple[Caption, Caption]]:
    """Pairs of a true phrase about one object of the scene and a false one, with its prefix."""
    pairs = [_shapes(scene, stream)]
    phrases = tuple(Phrase(each.shape, each.colour) for each in scene.objects[:2])
    exchanged = contrast.swap(Caption("list", phrases), scene, "colour")
    if exchanged is not None:  # in both orders, so that no colour is oftener true than another
        i = stream.below(2)
        pairs.append((phrases[i], exchanged.phrases[i]))
    for pair in pairs:
        true, false = (Caption("single", (phrase,), "", caption.prefix) for phrase in pair)
        if not grammar.is_true(false, scene):
            yield true, false


def _shapes(scene: Scene, stream: Stream) -> tuple[Phrase, Phrase]:
    """A shape that the scene has, and one that it has not."""
    present = stream.choice(scene.objects).shape
    return Phrase(present), Phrase(stream.choice(grammar.absent_shapes(scene)))
