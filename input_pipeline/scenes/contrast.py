"""Exact hard negatives and hard positives of a caption with known scene and parse.

Negatives are false for the scene (exception: `replace` with the draw "uniform_word_list") and never
mention a held-out shape-colour pair, unless the scene itself shows one (exception: `swap` with
`any_pair`): pairs that are held out of the pictures stay out of the texts. Functions return None if
a caption allows no such negative or positive.
"""

from collections.abc import Sequence

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.scenes import grammar, words
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.scenes.grammar import Caption
from vlc_jax.input_pipeline.scenes.stream import Stream
from vlc_jax.input_pipeline.scenes.world import Scene, World

DRAWS = ("uniform_word_list", "base_words", "no_true_synonyms")
SHUFFLES = ("nouns_and_adjectives", "all_but_nouns_and_adjectives", "within_trigrams", "trigrams")
ATTRIBUTES = ("colour", "size", "texture")
ROLES = ("shape", *ATTRIBUTES, "relation", "place", "number")
SYNONYM_SETS = ("a", "b", "ab")
# a short caption may come out unchanged, or true, several times
_SHUFFLE_TRIES = 20


def swap(
    caption: Caption,
    scene: Scene,
    role: str = "colour",
    pair: tuple[int, int] = (0, 1),
    *,
    any_pair: bool = False,
) -> Caption | None:
    """Hard negative: two phrases exchange one word, "a red circle and a blue square" ->
    "a blue circle and a red square". `role` is colour, size, texture or shape.

    any_pair: the negative may mention a held-out shape-colour pair. For evaluation only.
    """
    lookup.check_known("role to swap", [role], (*ATTRIBUTES, "shape"))
    if caption.kind == "negation" or max(pair) >= len(caption.phrases):
        return None
    phrases = list(caption.phrases)
    a, b = (getattr(phrases[i], role) for i in pair)
    if not a or not b or words.base(a) == words.base(b):
        return None
    for i, word in zip(pair, (b, a), strict=True):
        phrases[i] = phrases[i]._replace(**{role: word})
    swapped = caption._replace(phrases=tuple(phrases))
    if any_pair:
        return None if grammar.is_true(swapped, scene) else swapped
    return _negative(swapped, scene)


def repeat(caption: Caption, scene: Scene, role: str, phrase: int) -> Caption | None:
    """Hard negative: phrase 0 or 1 of two takes the word of the other, "a red circle and a blue
    square" -> "a red circle and a red square". `role` as in `swap`.
    """
    other = getattr(caption.phrases[1 - phrase], role)
    phrases = list(caption.phrases)
    phrases[phrase] = phrases[phrase]._replace(**{role: other})
    return _negative(caption._replace(phrases=tuple(phrases)), scene)


def reverse(caption: Caption, scene: Scene) -> Caption | None:
    """Hard negative: the two sides of a relation exchanged, "X left of Y" -> "Y left of X"."""
    if caption.kind != "relation":
        return None
    return _negative(caption._replace(phrases=caption.phrases[::-1]), scene)


def negate(caption: Caption, scene: Scene) -> Caption | None:
    """Hard negative: denies a present object, "X and Y" or "X left of Y" -> "X and no Y"."""
    if caption.kind not in ("list", "relation"):
        return None
    affirmed, denied = caption.phrases[:2]
    return _negative(Caption("negation", (affirmed, denied), "", caption.prefix), scene)


def replace(
    caption: Caption,
    scene: Scene,
    role: str,
    stream: Stream,
    draw: str = "uniform_word_list",
    phrase: int | None = None,
    absent: bool = False,
) -> Caption | None:
    """Hard negative: one word replaced by another of its class.

    `role` is shape, colour, size, texture, relation, place or number; if several phrases have the
    role, `phrase` or a random one is changed. A new shape is always absent from the scene; `absent`
    requires the same of the other attributes. `draw` selects the candidates for the new word:
      uniform_word_list  all other words of the class, as rule-based methods draw (SVLC): includes
                         true synonyms and rare words, so some "negatives" are true
      no_true_synonyms   the same without synonyms of the old word
      base_words         only base words with another meaning
    """
    lookup.check_known("draw", [draw], DRAWS)
    old = _word(caption, role, phrase, stream)
    if old is None:
        return None
    word, index = old
    if role == "shape":
        # a text that names a shape twice would need two objects of it
        mentioned = {other.shape for other in caption.phrases}
        options: Sequence[str] = [s for s in grammar.absent_shapes(scene) if s not in mentioned]
    elif draw == "base_words":
        options = words.base_words(scene.world, role)
    else:
        options = words.word_list(scene.world, role)
    base = words.base(word)
    if absent and role in ATTRIBUTES:
        present = {getattr(obj, role) for obj in scene.objects}
        options = [new for new in options if words.base(new) not in present]
    # this draw may be true: a method's own mistakes are part of what is compared
    if draw == "uniform_word_list":
        candidates = [_set_word(caption, role, index, new) for new in options if new != word]
        candidates = [other for other in candidates if _is_allowed(other, scene)]
    else:
        changed = [new for new in options if words.base(new) != base]
        candidates = [_set_word(caption, role, index, new) for new in changed]
        candidates = [other for other in candidates if _negative(other, scene)]
    return stream.choice(candidates) if candidates else None


def synonym(
    caption: Caption, role: str, stream: Stream, sets: str = "ab", phrase: int | None = None
) -> Caption | None:
    """Hard positive: one word replaced by a synonym from set A, set B or ("ab") either."""
    lookup.check_known("synonym set", [sets], SYNONYM_SETS)
    old = _word(caption, role, phrase, stream)
    if old is None:
        return None
    word, index = old
    both = words.synonyms(words.base(word))
    # strict=False: a word without synonyms has none in either set.
    options = [new for new, name in zip(both, "ab", strict=False) if name in sets]
    options = [new for new in options if new != word]
    return _set_word(caption, role, index, stream.choice(options)) if options else None


def reorder(caption: Caption) -> Caption | None:
    """Hard positive: the same meaning in another order, "X and Y" -> "Y and X" (conjunct swap),
    "X left of Y" -> "Y right of X".
    """
    if caption.kind == "list":
        return caption._replace(phrases=caption.phrases[::-1])
    if caption.kind == "relation":
        link = worlds.OPPOSITE[words.base(caption.link)]
        return caption._replace(phrases=caption.phrases[::-1], link=link)
    return None


def paraphrase(caption: Caption, stream: Stream, sets: str = "ab") -> Caption:
    """The caption with another prefix, in half of the draws in another order (`reorder`), and each
    word that has a synonym of `sets` replaced by it with probability 1/2."""
    made = caption._replace(prefix=stream.choice(words.PREFIXES))
    if stream.chance(0.5):
        made = reorder(made) or made
    attributes = [(role, n) for n in range(len(made.phrases)) for role in ATTRIBUTES]
    for role, phrase in (*attributes, ("relation", None)):
        if stream.chance(0.5):
            made = synonym(made, role, stream, sets, phrase) or made
    return made


def shuffle(caption: Caption, scene: Scene, kind: str, stream: Stream) -> str | None:
    """Hard negative text: some of the words in another order, and never true by accident.

    nouns_and_adjectives          nouns change places with nouns, adjectives with adjectives
    all_but_nouns_and_adjectives  every other word changes places, these stay
    within_trigrams               words move inside consecutive groups of three
    trigrams                      the groups of three change places
    The four perturbations of ARO's order benchmarks, on exact parts of speech.
    """
    lookup.check_known("shuffle", [kind], SHUFFLES)
    tagged = grammar.tags(caption)
    original = [word for word, _ in tagged]
    for _ in range(_SHUFFLE_TRIES):
        shuffled = _permute(original, _groups(tagged, kind, stream), stream)
        text = " ".join(shuffled)
        meaning = grammar.parse(text, scene.world)
        if shuffled != original and (meaning is None or _negative(meaning, scene)):
            return text
    return None


def _groups(tagged: list[tuple[str, str]], kind: str, stream: Stream) -> list[list[int]]:
    """Groups of positions that exchange words; for "trigrams" one group, the new order itself."""
    positions = range(len(tagged))
    trigrams = [list(positions[i : i + 3]) for i in positions[::3]]
    if kind == "within_trigrams":
        return trigrams
    if kind == "trigrams":
        order = stream.sample(len(trigrams), len(trigrams))
        return [[i for k in order for i in trigrams[k]]]
    nouns = [i for i in positions if tagged[i][1] == "NOUN"]
    adjectives = [i for i in positions if tagged[i][1] == "ADJ"]
    if kind == "nouns_and_adjectives":
        return [nouns, adjectives]
    return [[i for i in positions if i not in nouns and i not in adjectives]]


def _permute(original: list[str], groups: list[list[int]], stream: Stream) -> list[str]:
    if len(groups) == 1 and len(groups[0]) == len(original):
        return [original[i] for i in groups[0]]  # trigrams: already an order
    shuffled = list(original)
    for group in groups:
        for target, k in zip(group, stream.sample(len(group), len(group)), strict=True):
            shuffled[target] = original[group[k]]
    return shuffled


def _word(
    caption: Caption, role: str, phrase: int | None, stream: Stream
) -> tuple[str, int] | None:
    """The word to change and its phrase (-1: the caption's link); None without such a word."""
    lookup.check_known("role", [role], ROLES)
    if role in ("relation", "place", "number"):
        kind = "count" if role == "number" else role
        return (caption.link, -1) if caption.kind == kind else None
    indices = [i for i, other in enumerate(caption.phrases) if getattr(other, role)]
    if caption.kind == "negation":
        # denying another absent object would be true
        indices = [i for i in indices if i == 0]
    if phrase is not None:
        indices = [i for i in indices if i == phrase]
    if not indices:
        return None
    index = stream.choice(indices)
    return getattr(caption.phrases[index], role), index


def _set_word(caption: Caption, role: str, phrase: int, word: str) -> Caption:
    if phrase < 0:
        return caption._replace(link=word)
    phrases = list(caption.phrases)
    phrases[phrase] = phrases[phrase]._replace(**{role: word})
    return caption._replace(phrases=tuple(phrases))


def _negative(caption: Caption, scene: Scene) -> Caption | None:
    """The caption itself if it is false and allowed, else None."""
    return caption if _is_allowed(caption, scene) and not grammar.is_true(caption, scene) else None


def _is_allowed(caption: Caption, scene: Scene) -> bool:
    """True unless the caption mentions a held-out pair and the scene shows none."""
    if not mentions_held_out(caption, scene.world):
        return True
    held_out = scene.world.held_combinations
    return any((obj.shape, obj.colour) in held_out for obj in scene.objects)


def mentions_held_out(caption: Caption, world: World) -> bool:
    """True if the caption mentions a shape-colour pair that is held out of the pictures."""
    pairs = [(phrase.shape, words.base(phrase.colour)) for phrase in caption.phrases]
    return not world.held_combinations.isdisjoint(pairs)
