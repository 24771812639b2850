"""Conversations about scenes, as LLaVA's training has them about photographs: [[question, answer]].

caption   the caption alone
question  the question that the caption answers (scenes/questions.py), with its short answer
yes_no    does this figure show "..."? please answer yes or no: of the caption, or of one that is as
          likely without the picture and false; as often one as the other

The caption of yes_no is said about an object that is there or is not ("and no star", as well), two
colours or two places that are exchanged or are not: whichever the caption allows, drawn uniformly.
"""

import json
from collections.abc import Iterator, Mapping

from input_pipeline.scenes import contrast, grammar, questions, words
from input_pipeline.scenes.grammar import Caption, Phrase
from input_pipeline.scenes.stream import Stream
from input_pipeline.scenes.world import Scene, World

KINDS = ("caption", "question", "yes_no")
SHOWS = 'Does this figure show "{}"? Please answer yes or no.'  # as VQAScore asks
_SAID = (SHOWS, "yes", "user assistant", "is the or and", questions.ANY)


def conversation(
    caption: Caption, scene: Scene, stream: Stream, shares: Mapping[str, float]
) -> str:
    """A caption, or a question with its answer in JSON, of a kind drawn by shares that sum to 1."""
    kind = list(shares)[stream.weighted(list(shares.values()))]
    pairs = list(_statements(caption, scene, stream)) if kind == "yes_no" else []
    if kind == "question":
        turn = [questions.question(caption), questions.answer(caption)]
    elif pairs:
        is_false = stream.below(2)
        said = stream.choice(pairs)[is_false]
        turn = [SHOWS.replace("{}", said.text), ("yes", "no")[is_false]]
    else:
        return caption.text
    return json.dumps([turn])


def vocabulary(world: World) -> tuple[str, ...]:
    """Every word of captions, questions and answers in lower case, sorted."""
    asked = {word.strip('"{}?.') for text in _SAID for word in text.lower().split()}
    return tuple(sorted({*words.vocabulary(world), *filter(None, asked)}))


def _statements(
    caption: Caption, scene: Scene, stream: Stream
) -> Iterator[tuple[Caption, Caption]]:
    """Pairs of a true and a false caption of the scene."""
    for wrong in (
        contrast.swap(caption, scene, "colour"),
        contrast.reverse(caption, scene),
        contrast.replace(caption, scene, "shape", stream, "base_words"),
    ):
        if wrong is not None:
            yield caption, wrong
    present = Phrase(stream.choice(scene.objects).shape)
    absent = Phrase(stream.choice(grammar.absent_shapes(scene)))
    said = [phrase for phrase in caption.phrases if phrase.shape != present.shape]
    if said and caption.kind in ("list", "relation"):
        first = stream.choice(said)
        yield tuple(
            Caption("negation", (first, denied), "", caption.prefix) for denied in (absent, present)
        )
