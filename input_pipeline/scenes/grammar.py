"""Captions of scenes: drawing, parsing, and truth.

A `Caption` is its own parse: it holds the words of the text slot by slot, and `words.base` maps
them to their meaning. The article is always "a", never "an": otherwise "a orange" would reveal that
two words were exchanged.
"""

import dataclasses
import itertools
from typing import NamedTuple

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.scenes import shapes, words
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.stream import Stream
from vlc_jax.input_pipeline.scenes.world import Scene, SceneObject, World

# Universal POS tags, as spaCy gives them to captions of photographs
_TAGS = {
    "article": "DET", "no": "DET", "size": "ADJ", "texture": "ADJ", "colour": "ADJ",
    "shape": "NOUN", "relation": "ADP", "place": "ADP", "and": "CCONJ", "number": "NUM",
}  # fmt: skip
_PREFIX_TAGS = {
    "a": "DET", "an": "DET", "photo": "NOUN", "image": "NOUN", "of": "ADP", "there": "PRON",
    "we": "PRON", "is": "VERB", "see": "VERB",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Style:
    """Caption style: probabilities, tested in the order of the fields below `texture`.

    A place or relation needs a scene with a clear one, a second object a scene with two; otherwise
    the next kind is tried, and finally the list "X and Y".
    """

    # one of them, uniformly
    prefixes: tuple[str, ...] = ("", "", *words.PREFIXES)
    # of each mentioned object; at 0.5 plain CLIP learns to bind colours
    colour: float = 0.25
    size: float = 0.20
    texture: float = 0.20  # in worlds that have textures
    negation: float = 0.0  # "X and no Y"
    count: float = 0.0  # "two red circles"
    place: float = 0.15  # "X on the left"
    single: float = 0.15  # "X"
    relation: float = 0.35  # "X left of Y"
    # a list of three or more names all of them, not a part
    all_objects: float = 0.60
    # each word that has synonyms is replaced by A or B
    synonyms: float = 0.002
    # Mean share of a scene's objects that a caption names, at least one of them; None: the kinds
    # above decide. In place of `single` and `all_objects`: one object may have its place said, two
    # their relation.
    completeness: float | None = None
    # of incomplete captions: the biggest object (of two in boxes of one size the one that covers
    # more pixels) is named, instead of any; needs `completeness`
    saliency: float = 0.0

    def __post_init__(self) -> None:
        # a list from a config would make the style unhashable
        object.__setattr__(self, "prefixes", tuple(self.prefixes))
        lookup.check_known("prefix", self.prefixes, words.PREFIXES)
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name != "prefixes" and value is not None and not 0 <= value <= 1:
                raise ValueError(f"{field.name} is a probability in [0, 1]; got {value}")
        if self.saliency and self.completeness is None:
            raise ValueError(
                f"saliency={self.saliency} is of captions that name a part of the objects: set "
                "completeness, too"
            )


STYLES: dict[str, Style] = {
    "scenes-mini": Style(),
    "scenes-synonyms": Style(synonyms=0.15),
    "scenes-64": Style(synonyms=0.001),
}


def style_of(world: World, **changes: object) -> Style:
    """The caption style that belongs to a world, with fields of `Style` changed."""
    lookup.check_known("caption option", changes, [f.name for f in dataclasses.fields(Style)])
    return dataclasses.replace(STYLES.get(world.name, Style()), **changes)


class Phrase(NamedTuple):
    """An object phrase, in the words of the text; "" = attribute not mentioned."""

    shape: str
    colour: str = ""
    size: str = ""
    texture: str = ""


class Slot(NamedTuple):
    """Some words of a caption, their role, and the index of their phrase (-1: none)."""

    role: str
    text: str
    phrase: int = -1


class Caption(NamedTuple):
    """A caption and its parse. `link` is the relation, place or number, in the text's words."""

    kind: str
    phrases: tuple[Phrase, ...]
    link: str = ""
    prefix: str = ""

    @property
    def text(self) -> str:
        """The caption as a string."""
        return " ".join([slot.text for slot in slots(self)])


def slots(caption: Caption) -> list[Slot]:
    """The caption slot by slot, in the order of the text."""
    kind, phrases, link, prefix = caption
    out = [Slot("prefix", prefix)] if prefix else []
    if kind == "count":
        out.append(Slot("number", link))
        return out + _phrase_slots(phrases[0], 0, plural=link != "one")[1:]
    out += _phrase_slots(phrases[0], 0)
    if kind in ("place", "relation"):
        out.append(Slot(kind, link))
    for i in range(1, len(phrases)):
        more = _phrase_slots(phrases[i], i)
        if kind == "relation":
            out += more
        elif kind == "list":
            out += [Slot("and", "and"), *more]
        else:
            # negation: "no" stands for the article
            out += [Slot("and", "and"), Slot("no", "no"), *more[1:]]
    return out


def _phrase_slots(phrase: Phrase, index: int, plural: bool = False) -> list[Slot]:
    shape, colour, size, texture = phrase
    out = [Slot("article", "a", index)]
    if size:
        out.append(Slot("size", size, index))
    if texture:
        out.append(Slot("texture", texture, index))
    if colour:
        out.append(Slot("colour", colour, index))
    out.append(Slot("shape", words.plural(shape) if plural else shape, index))
    return out


def tags(caption: Caption) -> list[tuple[str, str]]:
    """(word, part of speech) for every single word; exact, because the grammar wrote the words."""
    return [
        (word, _PREFIX_TAGS[word] if slot.role == "prefix" else _TAGS[slot.role])
        for slot in slots(caption)
        for word in slot.text.split()
    ]


def describe(scene: Scene, stream: Stream, style: Style) -> Caption:
    """A true caption of the scene, drawn from `style`."""
    # The order of the draws below decides every caption: another order is another World.version.
    objects = scene.objects
    prefix = stream.choice(style.prefixes)
    if style.negation and stream.chance(style.negation):
        return _describe_negation(scene, stream, style, prefix)
    if style.count and stream.chance(style.count):
        return _describe_count(scene, stream, style, prefix)
    # mention only one of several copies
    if scene.world.repeat:
        looks = [(obj.shape, obj.colour) for obj in objects]
        known = [i for i, look in enumerate(looks) if look not in looks[:i]]
    else:
        known = list(range(len(objects)))
    order = [known[i] for i in stream.sample(len(known), len(known))]
    if style.completeness is not None:
        whole, rest = divmod(style.completeness * len(order), 1)
        count = max(1, int(whole) + stream.chance(rest))
        return _describe_part(scene, order, count, stream, style, prefix)
    if stream.chance(style.place):
        place = scene.place(order[0])
        if place is not None:
            phrase = _mention(scene, objects[order[0]], stream, style)
            return Caption("place", (phrase,), _draw_word(place, stream, style), prefix)
    if len(order) == 1 or stream.chance(style.single):
        return Caption("single", (_mention(scene, objects[order[0]], stream, style),), "", prefix)
    if stream.chance(style.relation):
        relation = scene.relation(order[0], order[1])
        if relation is not None:
            phrases = tuple(_mention(scene, objects[i], stream, style) for i in order[:2])
            return Caption("relation", phrases, _draw_word(relation, stream, style), prefix)
    if len(order) > 2 and not stream.chance(style.all_objects):
        order = order[: stream.between(2, len(order) - 1)]
    phrases = tuple([_mention(scene, objects[i], stream, style) for i in order])
    return Caption("list", phrases, "", prefix)


def _draw_word(word: str, stream: Stream, style: Style) -> str:
    """The base word itself or, rarely, one of its synonyms."""
    if stream.chance(style.synonyms):
        return stream.choice(words.synonyms(word) or (word,))
    return word


def _mention(scene: Scene, obj: SceneObject, stream: Stream, style: Style) -> Phrase:
    size = _draw_word(obj.size, stream, style) if stream.chance(style.size) else ""
    texture = ""
    if len(scene.world.textures) > 1 and stream.chance(style.texture):
        texture = _draw_word(obj.texture, stream, style)
    colour = _draw_word(obj.colour, stream, style) if stream.chance(style.colour) else ""
    return Phrase(obj.shape, colour, size, texture)


def _describe_part(
    scene: Scene, order: list[int], count: int, stream: Stream, style: Style, prefix: str
) -> Caption:
    """A caption of the first `count` objects of `order`, or with the biggest one among them."""
    if count < len(order) and stream.chance(style.saliency):
        k = max(range(len(order)), key=lambda k: _extent(scene.objects[order[k]]))
        if k >= count:
            # at any place: the order of mention must not tell sizes
            j = stream.below(count)
            order[j], order[k] = order[k], order[j]
    named = order[:count]
    kind, link = "single" if count == 1 else "list", None
    if count == 1 and stream.chance(style.place) and (link := scene.place(named[0])):
        kind = "place"
    elif count == 2 and stream.chance(style.relation) and (link := scene.relation(*named)):
        kind = "relation"
    phrases = tuple([_mention(scene, scene.objects[i], stream, style) for i in named])
    return Caption(kind, phrases, _draw_word(link, stream, style) if link else "", prefix)


def _extent(obj: SceneObject) -> tuple[int, int]:
    """Side of an object's box, and the pixels that the shape covers in it (in subpixels)."""
    return obj.pixels, int(shapes.mask(obj.shape, obj.pixels).sum())


def _describe_negation(scene: Scene, stream: Stream, style: Style, prefix: str) -> Caption:
    phrase = _mention(scene, stream.choice(scene.objects), stream, style)
    absent = Phrase(stream.choice(absent_shapes(scene)))
    return Caption("negation", (phrase, absent), "", prefix)


def _describe_count(scene: Scene, stream: Stream, style: Style, prefix: str) -> Caption:
    obj = stream.choice(scene.objects)
    colour = _draw_word(obj.colour, stream, style) if stream.chance(style.colour) else ""
    phrase = Phrase(words.ANY_SHAPE if stream.chance(0.5) else obj.shape, colour)
    number = sum(matches(phrase, other) for other in scene.objects)
    return Caption("count", (phrase,), words.NUMBERS[number - 1], prefix)


def absent_shapes(scene: Scene) -> list[str]:
    """The shapes of the world that the scene does not show."""
    present = {obj.shape for obj in scene.objects}
    return [shape for shape in scene.world.shapes if shape not in present]


def matches(phrase: Phrase, obj: SceneObject) -> bool:
    """True if the phrase is true of the object."""
    return (
        phrase.shape in (obj.shape, words.ANY_SHAPE)
        and (not phrase.colour or words.base(phrase.colour) == obj.colour)
        and (not phrase.size or words.base(phrase.size) == obj.size)
        and (not phrase.texture or words.base(phrase.texture) == obj.texture)
    )


def is_true(caption: Caption, scene: Scene) -> bool:
    """True if the caption holds for the scene.

    "a X" means at least one X; different phrases mean different objects; a relation or place holds
    only if `Scene.relation` or `Scene.place` returns the same word; a number is exact.
    """
    kind, phrases, link, _ = caption
    fits = [[matches(phrase, obj) for obj in scene.objects] for phrase in phrases]
    indices = range(len(scene.objects))
    if kind == "count":
        return sum(fits[0]) == words.NUMBERS.index(link) + 1
    if kind == "negation":
        return any(fits[0]) and not any(fits[1])
    if kind == "place":
        return any(fits[0][i] and scene.place(i) == words.base(link) for i in indices)
    if kind == "relation":
        return any(
            fits[0][i] and fits[1][j] and scene.relation(i, j) == words.base(link)
            for i, j in itertools.permutations(indices, 2)
        )
    return any(
        all(fit[i] for fit, i in zip(fits, chosen, strict=True))
        for chosen in itertools.permutations(indices, len(phrases))
    )


def parse(text: str, world: World) -> Caption | None:
    """The caption with this text, or None if the grammar of the world cannot produce it."""
    # "" fits every text: last
    for prefix in sorted(words.PREFIXES, key=len, reverse=True):
        if prefix and not text.startswith(prefix + " "):
            continue
        caption = _parse_body(text.split()[len(prefix.split()) :], world)
        if caption is not None:
            return caption._replace(prefix=prefix)
    return None


def _parse_body(tokens: list[str], world: World) -> Caption | None:
    if tokens and tokens[0] in words.NUMBERS:
        phrase, rest = _take_phrase(tokens, world, tokens[0], plural=tokens[0] != "one")
        return Caption("count", (phrase,), tokens[0]) if phrase and not rest else None
    phrase, rest = _take_phrase(tokens, world)
    if phrase is None:
        return None
    if not rest:
        return Caption("single", (phrase,))
    if " ".join(rest) in worlds.PLACES:
        return Caption("place", (phrase,), " ".join(rest))
    if rest[:2] == ["and", "no"]:
        absent, rest = _take_phrase(rest[1:], world, "no")
        return Caption("negation", (phrase, absent)) if absent and not rest else None
    for relation in words.word_list(world, "relation"):
        size = len(relation.split())
        if rest[:size] == relation.split():
            other, left = _take_phrase(rest[size:], world)
            if other and not left:
                return Caption("relation", (phrase, other), relation)
    phrases = [phrase]
    while rest and rest[0] == "and":
        phrase, rest = _take_phrase(rest[1:], world)
        if phrase is None:
            return None
        phrases.append(phrase)
    return None if rest else Caption("list", tuple(phrases))


def _take_phrase(
    tokens: list[str], world: World, opening: str = "a", plural: bool = False
) -> tuple[Phrase | None, list[str]]:
    """Reads "a [size] [texture] [colour] shape" and returns it with the tokens that follow."""
    if not tokens or tokens[0] != opening:
        return None, tokens
    rest, attributes = tokens[1:], {}
    for role in ("size", "texture", "colour"):
        if rest and rest[0] in words.word_list(world, role):
            attributes[role], rest = rest[0], rest[1:]
    shapes = (*world.shapes, words.ANY_SHAPE) if opening in words.NUMBERS else world.shapes
    for shape in shapes:
        if rest and rest[0] == (words.plural(shape) if plural else shape):
            return Phrase(shape, **attributes), rest[1:]
    return None, tokens
