"""Vocabulary of the scenes' captions: base words and their synonyms.

Scene graphs hold base words; a base word has two synonyms, A and B. "Word" here includes fixed
phrases such as "to the left of".
"""

import functools

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.world import World

PREFIXES = ("", "a photo of", "an image of", "there is", "we see")
NUMBERS = ("one", "two", "three", "four", "five", "six")
ANY_SHAPE = "shape"  # "two red shapes": a noun that fits every object

SYNONYMS: dict[str, tuple[str, str]] = {
    "red": ("crimson", "scarlet"),
    "green": ("emerald", "jade"),
    "blue": ("azure", "navy"),
    "yellow": ("golden", "lemon"),
    "purple": ("violet", "plum"),
    "orange": ("amber", "tangerine"),
    "pink": ("rose", "salmon"),
    "brown": ("chocolate", "tan"),
    "black": ("ebony", "inky"),
    "cyan": ("teal", "turquoise"),
    "grey": ("ashen", "slate"),
    "olive": ("khaki", "mossy"),
    "small": ("little", "tiny"),
    "big": ("large", "huge"),
    "plain": ("solid", "uniform"),
    "striped": ("stripy", "banded"),
    "dotted": ("spotted", "speckled"),
    "left of": ("to the left of", "on the left side of"),
    "right of": ("to the right of", "on the right side of"),
    "above": ("over", "on top of"),
    "below": ("under", "beneath"),
    "in front of": ("ahead of", "before"),
    "behind": ("in back of", "to the rear of"),
}

_BASE = {synonym: base for base, pair in SYNONYMS.items() for synonym in pair}


def base(word: str) -> str:
    """The base word of a synonym; other words are returned unchanged."""
    return _BASE.get(word, word)


def synonyms(base_word: str) -> tuple[str, ...]:
    """Synonyms (A, B) of a base word; () if it has none."""
    return SYNONYMS.get(base_word, ())


def plural(shape: str) -> str:
    """The plural of a shape's noun."""
    # cross and hourglass
    return shape + ("es" if shape.endswith("s") else "s")


@functools.cache
def base_words(world: World, role: str) -> tuple[str, ...]:
    """The base words that may fill a slot of a caption: shape, colour, size, relation, ..."""
    relations = worlds.DIRECTIONS + (worlds.DEPTHS if world.depth else ())
    classes = {
        "shape": world.shapes,
        "colour": world.colours,
        "size": tuple(world.pixels),
        "texture": world.textures,
        "relation": relations,
        "place": worlds.PLACES,
        "number": NUMBERS,
    }
    lookup.check_known("role", [role], classes)
    return classes[role]


@functools.cache
def word_list(world: World, role: str) -> tuple[str, ...]:
    """All words of a class: each base word followed by its synonyms."""
    return tuple(word for name in base_words(world, role) for word in (name, *synonyms(name)))


def vocabulary(world: World) -> tuple[str, ...]:
    """Every single word that a caption of this world can hold, sorted; no special tokens.

    Words for negation, counting and depth are always among them, so that the same tokenizer serves
    all kinds of captions.
    """
    roles = ["shape", "colour", "size", "relation", "place", "number"]
    roles += ["texture"] if len(world.textures) > 1 else []
    phrases = {word for role in roles for word in word_list(world, role)}
    phrases |= {word for name in worlds.DEPTHS for word in (name, *synonyms(name))}
    phrases |= {plural(shape) for shape in (*world.shapes, ANY_SHAPE)}
    phrases |= {*PREFIXES, ANY_SHAPE, "a", "and", "no"}
    return tuple(sorted({word for phrase in phrases for word in phrase.split()}))
