"""CREPE-style hard negatives: a word replaced, two words swapped, or a part negated.

After Ma et al., "CREPE: Can vision-language foundation models reason compositionally?" (CVPR
2023), section 4.2. CREPE's generator was never published: it takes atoms from scene graphs and
foils from WordNet, filtered by a language model. Here both come from our own tables
(`word_tables.CREPE_GROUPS`, longest match), without other models or data than an optional tagger;
so the texts are not CREPE's.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from vlc_jax.input_pipeline.hard_texts import edit, word_tables
from vlc_jax.input_pipeline.hard_texts.generator import CaptionGenerator, Tagger, Token
from vlc_jax.input_pipeline.hard_texts.taggers import ADJECTIVE_TAGS, NOUN_TAGS, make_tagger

CLASSES = tuple(word_tables.CREPE_GROUPS)
NEGATIONS = ("caption", "object", "attribute", "relation", "action")
_ATTRIBUTES = ("color", "size", "material", "state")


class Atom(NamedTuple):
    """A table word at caption[start:stop], and the words that contradict it (foils).

    kind: its word class; "objects" for plural nouns.
    """

    start: int
    stop: int
    kind: str
    foils: tuple[str, ...]


Sense = tuple[str, tuple[str, ...]]  # class of a word, and the words that contradict it there


def _foils() -> dict[str, tuple[Sense, ...]]:
    """Word -> its senses, one per class, with plural nouns. "orange" is a fruit and a colour."""
    table: dict[str, dict[str, tuple[str, ...]]] = {}
    for kind, groups in word_tables.CREPE_GROUPS.items():
        for group in groups:
            for word in group:
                foils = tuple([foil for foil in group if not word_tables.same_meaning(foil, word)])
                _add(table, word, kind, foils)
                if kind == "object":
                    many = tuple([word_tables.plural(foil) for foil in foils])
                    _add(table, word_tables.plural(word), "objects", many)
    return {word: tuple(senses.items()) for word, senses in table.items()}


def _add(
    table: dict[str, dict[str, tuple[str, ...]]], word: str, kind: str, foils: tuple[str, ...]
) -> None:
    senses = table.setdefault(word, {})
    senses[kind] = tuple(edit.distinct([*senses.get(kind, ()), *foils], word))


class _Crepe(CaptionGenerator):
    """Base of the three generators: finds the table words of a caption.

    tagger: KIND:ARGUMENT of `taggers.make_tagger`; then a word counts only as the part of speech of
      its class, and no noun inside a compound does ("bus" in "bus stop"). Without one, words of
      two classes are left out: "orange" in "a woman in an orange suit" is no fruit.
    """

    _number = "2"  # of the rule set, part of `version`

    def __init__(self, classes: Sequence[str] = CLASSES, tagger: str | None = None) -> None:
        edit.check_names("word class", "classes", classes, CLASSES)
        self._classes = tuple(classes)
        self._foils = _foils()
        self._pattern = edit.whole(self._foils)
        self._tagger: Tagger | None = None if tagger is None else make_tagger(tagger)
        tags = "none" if self._tagger is None else f"{self._tagger.name}@{self._tagger.version}"
        self.version = edit.version(self._number, classes=",".join(classes), tagger=tags)

    def atoms(self, caption: str) -> list[Atom]:
        """The table words of the caption, left to right; the longest match wins.

        Raises DataError for a caption that the tagger cannot tag.
        """
        atoms = []
        tokens = self._tagger(caption).tokens if self._tagger else ()
        ends = {token.stop: index for index, token in enumerate(tokens)}
        for match in self._pattern.finditer(caption):
            senses = self._foils[match[0].lower()]
            if self._tagger:
                index = ends.get(match.end())
                following = tokens[index + 1 : index + 2] if index is not None else ()
                tag = tokens[index].tag if index is not None else ""
                senses = [each for each in senses if _fits(each[0], tag, following)]
            if len(senses) != 1:
                continue
            ((kind, foils),) = senses
            if kind in self._classes or (kind == "objects" and "object" in self._classes):
                atoms.append(Atom(*match.span(), kind, foils))
        return atoms


def _fits(kind: str, tag: str, following: Sequence[Token]) -> bool:
    """True if a word with this Penn tag, before these tokens (at most one), is of the class."""
    if kind in ("object", "objects"):
        return tag in NOUN_TAGS and not any(token.tag in NOUN_TAGS for token in following)
    if kind in _ATTRIBUTES:
        # VBN, VBG: "striped", "sitting"; NN: "wood", but no noun that stands by itself
        is_noun = tag == "NN" and any(token.tag in NOUN_TAGS for token in following)
        return tag in (*ADJECTIVE_TAGS, "VBN", "VBG") or is_noun
    return tag.startswith("VB") if kind == "action" else tag != ""


class CrepeReplace(_Crepe):
    """A word replaced by one that contradicts it: "a dog on a chair" -> "a dog under ..."."""

    name = "crepe_replace"

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """Up to `count` texts, each of another word of the caption until all are used."""
        atoms = [atom for atom in self.atoms(caption) if atom.foils]
        if not atoms:
            return []
        present = {caption[atom.start : atom.stop].lower() for atom in atoms}
        texts: list[str] = []
        order = list(rng.permutation(len(atoms)))
        for draw in range(count):
            atom = atoms[order[draw % len(order)]]
            old = caption[atom.start : atom.stop]
            # No word that the caption already has: "a cat and a cat" may be true of the image.
            foils = [foil for foil in atom.foils if foil not in present] or list(atom.foils)
            new = edit.like(foils[int(rng.integers(len(foils)))], old)
            texts.append(edit.repaired(caption, [(atom.start, atom.stop, new)]))
        return edit.distinct(texts, caption)


class CrepeSwap(_Crepe):
    """Two words of one class swapped: "a red car and a blue bus" -> "a blue car and a red bus".

    Words joined by "and", a list or "next to", directly or through other words of their class, are
    never swapped: the meaning would stay ("a man and a woman near a dog": neither man and woman
    nor man and dog).
    """

    name = "crepe_swap"
    _number = "3"

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """Up to `count` texts, a random subset if there are more."""
        atoms = self.atoms(caption)
        pairs = [
            (a, b)
            for i, a in enumerate(atoms)
            for b in atoms[i + 1 :]
            if a.kind == b.kind
            and caption[a.start : a.stop].lower() != caption[b.start : b.stop].lower()
            # no "lays down on a mat"
            and caption[a.stop : b.start].strip()
            and not edit.are_alike(caption, _between(atoms, a, b))
        ]
        chosen = edit.choose(rng, pairs, count)
        texts = [edit.exchange(caption, (a.start, a.stop), (b.start, b.stop)) for a, b in chosen]
        return edit.distinct(texts, caption)


def _between(atoms: Sequence[Atom], first: Atom, last: Atom) -> list[edit.Span]:
    """Spans of the atoms of one class from first to last; plural nouns are of the same class."""
    kind = first.kind.removesuffix("s")
    same = [atom for atom in atoms if atom.kind.removesuffix("s") == kind]
    return [(atom.start, atom.stop) for atom in same if first.start <= atom.start <= last.start]


class CrepeNegate(_Crepe):
    """The caption or a part of it negated by a template.

    caption    "There is no <caption>", without its first article
    object     "a dog" -> "no dog"
    attribute  "a red car" -> "a car that is not red" for the last attribute before its noun
    relation   "on a chair" -> "not on a chair";   action  "sitting" -> "not sitting"
    """

    name = "crepe_negate"

    def __init__(
        self,
        negations: Sequence[str] = NEGATIONS,
        classes: Sequence[str] = CLASSES,
        tagger: str | None = None,
    ) -> None:
        super().__init__(classes, tagger)
        edit.check_names("negation", "negations", negations, NEGATIONS)
        self._negations = tuple(negations)
        self.version += f" negations={','.join(negations)}"

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """Up to `count` texts, a random subset if there are more; draws the negation first."""
        kinds: dict[str, list[str]] = {}
        if "caption" in self._negations and any(map(str.isalpha, caption)):
            kinds["caption"] = [_there_is_no(caption)]
        atoms = self.atoms(caption)
        for i, atom in enumerate(atoms):
            kind = "attribute" if atom.kind in _ATTRIBUTES else atom.kind
            after = atoms[i + 1] if i + 1 < len(atoms) else None
            text = _negated(caption, atom, after, kind) if kind in self._negations else None
            if text is not None:
                kinds.setdefault(kind, []).append(text)
        texts: list[str] = []
        while kinds and len(texts) < count:
            kind = list(kinds)[int(rng.integers(len(kinds)))]
            texts.append(kinds[kind].pop(int(rng.integers(len(kinds[kind])))))
            kinds = {kind: texts_left for kind, texts_left in kinds.items() if texts_left}
        return edit.distinct(texts, caption)


def _there_is_no(caption: str) -> str:
    text = re.sub(r"^(?:there\s+(?:is|are)\s+)?(?:(?:an?|the|some)\s+)?", "", caption, flags=re.I)
    opening = text.split()[0] if text.split() else ""
    if opening[1:].islower() or len(opening) == 1:
        text = text[:1].lower() + text[1:]
    return f"There is no {text}" if caption[:1].isupper() else f"there is no {text}"


def _negated(caption: str, atom: Atom, after: Atom | None, kind: str) -> str | None:
    """The caption with the atom negated; None if the template does not apply."""
    word = caption[atom.start : atom.stop]
    if kind in ("relation", "action"):
        if atom.start == 0 or caption[: atom.start].lower().endswith("not "):
            return None
        return edit.apply(caption, [(atom.start, atom.stop, f"not {word}")])
    if kind == "object":
        before = re.search(r"\b(an?|the)\s+$", caption[: atom.start], re.IGNORECASE)
        if before is None:
            return None
        return edit.apply(caption, [(*before.span(1), edit.like("no", before[1]))])
    if (
        after is None
        or after.kind not in ("object", "objects")
        or caption[atom.stop : after.start].strip()
    ):
        return None
    noun = caption[after.start : after.stop]
    verb = "is" if after.kind == "object" else "are"
    new = f"{noun} that {verb} not {word.lower()}"
    return edit.repaired(caption, [(atom.start, after.stop, new)])
