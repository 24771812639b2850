"""The question that a caption of a scene answers; it says nothing of the answer.

"a blue square left of a red circle" answers "is the blue square left of or right of the red
circle", "a red circle and a blue square" answers "is the circle blue or red and the square blue or
red", every other caption ANY. What a question names is in alphabetical order, so that the caption
with its objects or colours exchanged answers the same question. "or" and "what" are no
words of captions: to the tokenizer of the scenes they are one unknown word.
"""

from vlc_jax.input_pipeline.scenes import words
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.grammar import Caption, Phrase

ANY = "what is there"
_FIRST = ("left of", "above", "in front of")  # of a relation and its opposite


def question(caption: Caption) -> str:
    """The question that the caption answers."""
    if caption.kind == "relation":
        first, second = sorted(map(_named, caption.phrases))
        said = words.base(caption.link)
        one = said if said in _FIRST else worlds.OPPOSITE[said]
        return f"is the {first} {one} or {worlds.OPPOSITE[one]} the {second}"
    colours = sorted({words.base(phrase.colour) for phrase in caption.phrases})
    if caption.kind == "list" and len(caption.phrases) == 2 and all(colours) and len(colours) == 2:
        options = " or ".join(colours)
        first, second = sorted(phrase.shape for phrase in caption.phrases)
        return f"is the {first} {options} and the {second} {options}"
    return ANY


def answer(caption: Caption) -> str:
    """The caption's answer to its `question`, in a few words: "left of", "blue and red" (of the
    shapes in the question's order); the caption itself where the question is ANY."""
    if caption.kind == "relation":
        said = words.base(caption.link)
        is_turned = _named(caption.phrases[0]) > _named(caption.phrases[1])
        return worlds.OPPOSITE[said] if is_turned else said
    if question(caption) == ANY:
        return caption.text
    colours = {phrase.shape: words.base(phrase.colour) for phrase in caption.phrases}
    return " and ".join(colours[shape] for shape in sorted(colours))


def presence(shape: str, other: str) -> str:
    """The question which of two shapes there is, "is there a square or a star"; its answer is the
    one, of a caption that denies one, the other."""
    first, second = sorted((shape, other))
    return f"is there a {first} or a {second}"


def short(caption: Caption, wrong: Caption) -> tuple[str, list[str]] | None:
    """A question that both captions answer in a few words, and the answer of each; None where they
    differ in something else than a relation, two colours or which shape there is.
    """
    if (asked := shared(caption, wrong)) != ANY:
        return asked, [answer(caption), answer(wrong)]
    own, other = ({phrase.shape for phrase in each.phrases} for each in (caption, wrong))
    if len(own - other) != 1 or len(other - own) != 1:
        return None
    answers = [*(own - other), *(other - own)]
    if caption.kind == "negation":  # the shape that it alone names is the one that it denies
        answers.reverse()
    return presence(*answers), answers


def shared(*captions: Caption) -> str:
    """The question that all these captions answer, each in its way; ANY if they answer others."""
    asked = {question(caption) for caption in captions}
    return asked.pop() if len(asked) == 1 else ANY


def _named(phrase: Phrase) -> str:
    said = (phrase.size, phrase.texture, phrase.colour, phrase.shape)
    return " ".join(words.base(word) for word in said if word)
