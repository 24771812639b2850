"""Conversations about scenes, like LLaVA's training data about photographs: a turn, question and
answer, for each caption.

question  the question that the caption answers (scenes/questions.py), with its short answer
presence  the shape that the picture has, of two: "is there a square or a star"
colours   the colours of the first two objects, whether or not the caption mentions them
describe  the caption, asked for by "what is there"
yes_no    'Does this figure show "..."? Please answer yes or no.': the caption or, equally often, a
          false one that is as likely without the picture
object    the same question about one object: a present or an absent shape, "a star", or a shape
          with its own colour or the other object's, "a red circle"

The two captions of yes_no differ in one shape, in two exchanged colours, in two exchanged positions
or in a denied shape ("and no star"): drawn uniformly from the pairs that the caption allows.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from vlc_jax.input_pipeline.record import Caption as RecordCaption
from vlc_jax.input_pipeline.record import Conversation
from vlc_jax.input_pipeline.scenes import contrast, grammar, questions, words
from vlc_jax.input_pipeline.scenes.grammar import Caption, Phrase
from vlc_jax.input_pipeline.scenes.stream import Stream
from vlc_jax.input_pipeline.scenes.world import Scene, World

KINDS = ("caption", "question", "yes_no", "object", "presence", "colours", "describe")
SHOWS = 'Does this figure show "{}"? Please answer yes or no.'  # VQAScore's question
_FURTHER_TEXTS = (SHOWS, "yes", "user assistant", "is the or and", questions.ANY)


def conversation(
    captions: Sequence[Caption], scene: Scene, stream: Stream, shares: Mapping[str, float]
) -> RecordCaption:
    """The first caption alone, or a Conversation with a turn about each caption.

    shares: kind -> share, for "caption" and the kinds of turns; they sum to 1.
    """
    if stream.chance(shares.get("caption", 0.0)):
        return captions[0].text
    kinds = [kind for kind in shares if kind != "caption"]
    weights = np.array([shares[kind] for kind in kinds])
    drawn = [kinds[stream.weighted(weights / weights.sum())] for _ in captions]
    pairs = zip(drawn, captions, strict=True)
    return Conversation(tuple(_turn(kind, caption, scene, stream) for kind, caption in pairs))


def vocabulary(world: World) -> tuple[str, ...]:
    """Every word of captions, questions and answers in lower case, sorted."""
    further = {word.strip('"{}?.') for text in _FURTHER_TEXTS for word in text.lower().split()}
    return tuple(sorted({*words.vocabulary(world), *filter(None, further)}))


def _turn(kind: str, caption: Caption, scene: Scene, stream: Stream) -> tuple[str, str]:
    if kind == "describe":
        return questions.ANY, caption.text
    if kind == "colours":
        phrases = tuple(Phrase(each.shape, each.colour) for each in scene.objects[:2])
        kind, caption = "question", Caption("list", phrases)
    if kind == "question":
        return questions.question(caption), questions.answer(caption)
    if kind == "presence":
        present = stream.choice(scene.objects).shape
        return questions.presence(present, stream.choice(grammar.absent_shapes(scene))), present
    # drawn before the statement, so that every kind of statement is false equally often
    is_false = stream.below(2)
    pairs = list(_statements(caption, scene, stream)) if kind == "yes_no" else []
    # a caption that allows no exchange, replacement or denial gives way to one of the objects
    statement = stream.choice(pairs or list(_objects(caption, scene, stream)))[is_false]
    return SHOWS.replace("{}", statement.text), ("yes", "no")[is_false]


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
    # either object, so that no colour is true more often than another
    if exchanged is not None:
        i = stream.below(2)
        pairs.append((phrases[i], exchanged.phrases[i]))
    for pair in pairs:
        true, false = (Caption("single", (phrase,), "", caption.prefix) for phrase in pair)
        if not grammar.is_true(false, scene):
            yield true, false


def _shapes(scene: Scene, stream: Stream) -> tuple[Phrase, Phrase]:
    """A present shape of the scene and an absent one."""
    present = stream.choice(scene.objects).shape
    return Phrase(present), Phrase(stream.choice(grammar.absent_shapes(scene)))
