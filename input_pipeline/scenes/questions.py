"""The question that a caption of a scene answers; it does not reveal the answer.

"a blue square left of a red circle" answers "is the blue square left of or right of the red
circle", "a red circle and a blue square" answers "is the circle blue or red and the square blue or
red", every other caption ANY. A question names objects and colours in alphabetical order, so that
the caption with its objects or colours exchanged answers the same question. Captions do not contain
"or" and "what": the tokenizer of the scenes maps both to its unknown word.
"""

from vlc_jax.input_pipeline.scenes import words
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.grammar import Caption, Phrase

ANY = "what is there"
_FIRST = ("left of", "above", "in front of")  # named before their opposites


def question(caption: Caption) -> str:
    """The question that the caption answers."""
    if caption.kind == "relation":
        # alphabetical: the question must not tell which object the caption names first
        first, second = sorted(map(_named, caption.phrases))
        relation = words.base(caption.link)
        if relation not in _FIRST:
            relation = worlds.OPPOSITE[relation]
        return f"is the {first} {relation} or {worlds.OPPOSITE[relation]} the {second}"
    colours = sorted({words.base(phrase.colour) for phrase in caption.phrases})
    if caption.kind == "list" and len(caption.phrases) == 2 and all(colours) and len(colours) == 2:
        options = " or ".join(colours)
        first, second = sorted(phrase.shape for phrase in caption.phrases)
        return f"is the {first} {options} and the {second} {options}"
    return ANY


def answer(caption: Caption) -> str:
    """The caption's answer to its `question`: "left of", "blue and red" (in the question's order).

    The caption itself if the question is ANY.
    """
    if caption.kind == "relation":
        relation = words.base(caption.link)
        is_turned = _named(caption.phrases[0]) > _named(caption.phrases[1])
        return worlds.OPPOSITE[relation] if is_turned else relation
    if question(caption) == ANY:
        return caption.text
    colours = {phrase.shape: words.base(phrase.colour) for phrase in caption.phrases}
    return " and ".join(colours[shape] for shape in sorted(colours))


def presence(shape: str, other: str) -> str:
    """The question "is there a square or a star"; its answer is the present shape.

    For a caption that denies one of the shapes, the answer is the other one.
    """
    first, second = sorted((shape, other))
    return f"is there a {first} or a {second}"


def short(caption: Caption, wrong: Caption) -> tuple[str, list[str]] | None:
    """A question that both captions answer in a few words, and the answer of each.

    None if the captions differ in anything but a relation, two colours or one shape.
    """
    if (common := shared(caption, wrong)) != ANY:
        return common, [answer(caption), answer(wrong)]
    right_shapes, wrong_shapes = (
        {phrase.shape for phrase in each.phrases} for each in (caption, wrong)
    )
    only_right, only_wrong = right_shapes - wrong_shapes, wrong_shapes - right_shapes
    if len(only_right) != 1 or len(only_wrong) != 1:
        return None
    answers = [*only_right, *only_wrong]
    # the differing shape of each caption is the one that it denies
    if caption.kind == "negation":
        answers.reverse()
    return presence(*answers), answers


def shared(*captions: Caption) -> str:
    """The question that all captions answer; ANY if they answer different questions."""
    questions = {question(caption) for caption in captions}
    return questions.pop() if len(questions) == 1 else ANY


def _named(phrase: Phrase) -> str:
    parts = (phrase.size, phrase.texture, phrase.colour, phrase.shape)
    return " ".join(words.base(word) for word in parts if word)
