"""Parts of speech from closed lists of words, for captions of photographs and where no tagger is.

Function words are listed, attributes and actions come from `word_tables`, and every other word is
taken for a noun. It knows no sentence: it is no replacement for spaCy in generators of hard texts
(`taggers.TAGGERS` does not have it), and good enough to count bindings (`bindings`).
"""

import re

from vlc_jax.input_pipeline.hard_texts import word_tables
from vlc_jax.input_pipeline.hard_texts.generator import Tagged, Token


def _words(text: str) -> list[str]:
    return text.split()


_OBJECTS = frozenset(word for group in word_tables.CREPE_GROUPS["object"] for word in group)
ATTRIBUTES = (
    frozenset(
        word.strip()
        for kind in ("color", "size", "state", "material")
        for each in (word_tables.SVLC_CLASSES[kind], *word_tables.CREPE_GROUPS[kind])
        for word in each
    )
    | {"grey", "checkered", "striped", "dotted", "square", "round", "filled", "hollow"}
) - _OBJECTS
_NUMBERS = "one two three four five six seven eight nine ten eleven twelve"
_VERBS = _words(
    "sit stand lie ride hold walk run fly eat wear carry play look watch use jump sleep throw "
    "catch cut drive swing hit kick pull push chase touch cover surround contain have say show"
)
_CLOSED = {
    word: pos
    for pos, words in {
        "DET": "a an the this these those his her its their my our your some any each every both "
        "another no all",
        "CCONJ": "and or but",
        "AUX": "is are was were be been being am can could will would may might must does do did",
        "PRON": "he she it they we i you him them who which that there someone himself herself "
        "itself what",
        "SCONJ": "while as because if when where",
        "ADV": "very also still just not together here almost too away",
        "ADP": "on under underneath above below over beneath in behind outside inside beside near "
        "of by with without to from at into onto up down toward towards through across along "
        "against between among around for off out past about after before atop within during "
        "nearby",
        "NUM": _NUMBERS,
        "VERB": "has says wears lies flies carries catches watches made",
    }.items()
    for word in _words(words)
} | {form: "VERB" for verb in _VERBS for form in (verb, f"{verb}s")}
# words that an ending would make a verb
_NOUNS = {
    *_words(
        "building ceiling railing painting clothing morning evening string king ring wing thing "
        "something nothing anything everything wedding icing lighting crossing landing dressing "
        "spring frosting sibling pudding topping siding awning bed shed sled weed seed speed "
        "breed hundred"
    )
}
_WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")
_TAGS = {"NOUN": "NN", "ADJ": "JJ", "VERB": "VB", "DET": "DT", "ADP": "IN", "NUM": "CD"}
_IN_PHRASE = ("DET", "NUM", "ADJ", "NOUN")


class WordTagger:
    """caption -> `Tagged`; deterministic, tens of microseconds per caption, never raises."""

    name, version = "words", "1"

    def __call__(self, caption: str) -> Tagged:
        matches = [*_WORD.finditer(caption)]
        words = [match[0].lower() for match in matches]
        parts: list[str] = []
        for index, word in enumerate(words):
            following = words[index + 1] if index + 1 < len(words) else ""
            parts.append(_part(word, parts[-1] if parts else "", following))
        chunks = []
        for start, stop in _runs(parts):
            if "NOUN" not in parts[start:stop]:
                # "in water", "the orange" are things; "is orange", "very small" are none
                if parts[stop - 1] != "ADJ" or (start and parts[start - 1] in ("AUX", "ADV")):
                    continue
                parts[stop - 1] = "NOUN"
            chunks.append((start, stop))
        tokens = [
            Token(match[0], _TAGS.get(pos, pos), pos, match.start(), match.end())
            for match, pos in zip(matches, parts, strict=True)
        ]
        return Tagged(tuple(tokens), tuple(chunks))


def _part(word: str, before: str, following: str) -> str:
    """Universal part of speech of a word. before: part of the word before it."""
    if not word[0].isalnum():
        return "PUNCT"
    if word.isdigit():
        return "NUM"
    # "left of", "next to", "close to", "far from"; not "to the left of"
    if (word, following) in _PREPOSITIONS and before != "DET":
        return "ADP"
    is_verb = _CLOSED.get(word) == "VERB" or (
        word not in _NOUNS and word not in ATTRIBUTES and len(word) > 4 and word.endswith(_ENDINGS)
    )
    if is_verb:
        # "a smiling woman", "the parked car", "a stand"; at the beginning "smiling woman"
        is_inside = before in ("DET", "NUM", "ADJ")
        is_inside |= before in ("", "ADP") and following.isalpha() and following not in _CLOSED
        if not is_inside:
            return "VERB"
        return "ADJ" if word.endswith(_ENDINGS) and following.isalpha() else "NOUN"
    if word in _CLOSED:
        return _CLOSED[word]
    if word in ATTRIBUTES:
        return "ADJ"
    return "ADV" if word.endswith("ly") and word not in ("fly", "family", "belly") else "NOUN"


_ENDINGS = ("ing", "ed")
_PREPOSITIONS = {
    ("left", "of"), ("right", "of"), ("next", "to"), ("close", "to"), ("far", "from"),
    ("adjacent", "to"),
}  # fmt: skip


def _runs(parts: list[str]) -> list[tuple[int, int]]:
    """Longest runs of determiners, numbers, attributes and nouns; a determiner begins a new one."""
    runs: list[tuple[int, int]] = []
    for index, part in enumerate(parts):
        # "black and white dog"
        is_and = part == "CCONJ" and parts[index - 1 : index + 2 : 2] == ["ADJ", "ADJ"]
        if part not in _IN_PHRASE and not is_and:
            continue
        is_next = runs and runs[-1][1] == index and part not in ("DET", "NUM")
        # "all three dogs": a number continues a determiner
        is_next = is_next or (runs and runs[-1][1] == index and parts[index - 1] in ("DET", "NUM"))
        if is_next:
            runs[-1] = (runs[-1][0], index + 1)
        else:
            runs.append((index, index + 1))
    return runs
