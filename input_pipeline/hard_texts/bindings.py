"""Bindings of captions: (attribute, object) and (subject, relation, object), and which of them
occur in training captions.

After BindSplit (openreview 0riiPY0Egp): a benchmark's case says less about binding where the
correct caption's combination was seen in training and the wrong caption's was not.
"""

import array
import functools
import hashlib
import importlib.util
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.hard_texts import taggers, word_tables
from vlc_jax.input_pipeline.hard_texts.generator import Tagged, Tagger, Token
from vlc_jax.input_pipeline.hard_texts.llm import captions as caption_files
from vlc_jax.input_pipeline.hard_texts.word_tagger import ATTRIBUTES, WordTagger
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import shards
from vlc_jax.input_pipeline.sources.table_index import TableIndex
from vlc_jax.input_pipeline.stores.progress import Line

Binding = tuple[str, ...]  # attribute, object; or subject, relation, object

WORDS = "words"  # the tagger without spaCy
SPACY = "en_core_web_sm"
_VERSION = 1  # of the rules below; raised when a caption has other bindings
_AT_ONCE = 1 << 16  # captions read before their bindings are merged
_SINGULARS = {plural: noun for noun, plural in word_tables.IRREGULAR_PLURALS.items()}
# "in front of", "on the left side of": spaCy has a noun phrase in the middle of them
_PLACES = (
    "front", "top", "bottom", "left", "right", "side", "back", "rear", "middle", "center",
    "centre", "edge", "end", "inside",
)  # fmt: skip
_NO_ATTRIBUTES = (
    "other", "same", "own", "such", "several", "many", "few", "various", "more", "most",
)  # fmt: skip
_OF_RELATION = ("ADP", "VERB", "PART", "ADJ", "ADV", "NOUN")


NONE = "no binding differs"
GROUPS = {  # (caption seen, wrong caption seen) -> group
    (True, True): "both seen",
    (True, False): "only caption seen",
    (False, True): "only wrong caption seen",
    (False, False): "neither seen",
}


def find(tagged: Tagged) -> frozenset[Binding]:
    """Bindings of a tagged caption, in lower case: nouns in the singular, verbs as stems.

    (attribute, object): an adjective, number, participle or word of attributes before the noun of
      its phrase, behind it with "is", or the verb behind it ("a man standing": stand, man).
    (subject, relation, object): two phrases that follow one another and the preposition or verb
      between them. No parse: in "a man in a hat riding a horse" the hat rides.
    """
    tokens, bindings = tagged.tokens, set()
    found = [*phrases(tagged)]
    for start, head, stop in found:
        noun = _noun(tokens[head].text)
        bindings |= {(_base(token), noun) for token in tokens[start:head] if _is_attribute(token)}
        bindings |= {(word, noun) for word in _behind(tokens[stop:])}
    for (_, first, stop), (start, second, _) in itertools.pairwise(found):
        if words := relation(tokens[stop:start]):
            bindings.add((_noun(tokens[first].text), words, _noun(tokens[second].text)))
    return frozenset(bindings)


def phrases(tagged: Tagged) -> Iterator[tuple[int, int, int]]:
    """(first token, noun, last + 1) of noun phrases; without pronouns and places of a relation."""
    tokens = tagged.tokens
    for start, stop in tagged.noun_chunks:
        nouns = [i for i in range(start, stop) if tokens[i].pos in ("NOUN", "PROPN")]
        is_place = stop < len(tokens) and tokens[stop].text == "of"
        if nouns and not (is_place and tokens[nouns[-1]].text.lower() in _PLACES):
            yield start, nouns[-1], stop


def _is_attribute(token: Token) -> bool:
    word = token.text.lower()
    return word in ATTRIBUTES or (
        token.pos in ("ADJ", "NUM", "VERB") and word not in _NO_ATTRIBUTES
    )


def _behind(tokens: tuple[Token, ...]) -> Iterator[str]:
    """Adjectives behind a form of "be", or the first verb, that follow a noun phrase."""
    is_said = False
    for token in tokens:
        if token.pos == "AUX":
            is_said = True
        elif token.pos == "VERB":
            yield _base(token)
            return
        elif token.pos == "ADJ" and is_said:
            yield _base(token)
        elif token.pos != "ADV" and not (is_said and token.pos == "CCONJ"):
            return


def relation(between: tuple[Token, ...]) -> str:
    """The words of a relation between two noun phrases; "" for a list or another sentence."""
    words: list[tuple[str, str]] = []
    for token in between:
        if token.text in ".;!?:":
            return ""
        if token.pos == "CCONJ" or token.text == ",":
            words = []
        elif token.pos in _OF_RELATION:
            words.append((_base(token), token.pos))
    has_link = any(pos in ("ADP", "VERB") for _, pos in words)
    return " ".join(word for word, _ in words) if has_link else ""


def _base(token: Token) -> str:
    word = token.text.lower()
    # "parked car" and "car parked", whatever the tagger calls them
    return _stem(word) if token.pos == "VERB" or word.endswith(("ing", "ed")) else word


def _stem(verb: str) -> str:
    """One stem for "rides", "riding" and "ride"; not always a word ("rid")."""
    for ending in ("ing", "ed", "es", "s"):
        if verb.endswith(ending) and len(verb) > len(ending) + 2:
            verb = verb.removesuffix(ending)
            break
    # "sitting", but not "pull"
    if len(verb) > 3 and verb[-1] == verb[-2] and verb[-1] not in "lsz":
        verb = verb[:-1]
    verb = verb.removesuffix("e")
    return f"{verb[:-1]}i" if verb.endswith("y") else verb


def _noun(word: str) -> str:
    word = word.lower()
    if word in _SINGULARS:
        return _SINGULARS[word]
    if word.endswith("ies") and len(word) > 4:
        return f"{word[:-3]}y"
    if word.endswith(("ches", "shes", "xes", "sses")):
        return word[:-2]
    is_plural = word.endswith("s") and len(word) > 3 and not word.endswith(("ss", "us", "is"))
    return word[:-1] if is_plural else word


def make_tagger(spec: str = "") -> Tagger:
    """`taggers.make_tagger`, or the tagger "words"; by default spaCy's, if it is installed.

    Raises as `taggers.make_tagger`.
    """
    if spec:
        lookup.check_known("tagger", [spec.partition(":")[0]], (WORDS, *taggers.TAGGERS))
        return WordTagger() if spec == WORDS else taggers.make_tagger(spec)
    is_installed = all(importlib.util.find_spec(name) for name in ("spacy", SPACY))
    return taggers.make_tagger(f"spacy:{SPACY}") if is_installed else WordTagger()


class Training:
    """The bindings of training captions.

    One pass over the captions, of which only hashes are held, 8 bytes per different binding. They
    are kept in the index of the table (`sources/table_index.py`) by its sha256, the column and the
    tagger; those of a prepared folder in the index of its manifest.

    Args:
      path: a table, as `hard_texts.llm.captions.rows` reads it, or a prepared folder.
      column: of a table's captions.   tagger: `make_tagger`.
    Raises ValueError for a missing file or column, DataError for unreadable content and for a
    caption that the tagger cannot tag.
    """

    def __init__(self, path: Path, column: str = "caption", tagger: str = "") -> None:
        manifest = path / shards.MANIFEST
        file = manifest if manifest.is_file() else path
        if not file.is_file():
            raise ValueError(f"no file {path}" + (" (it is a folder)" if path.is_dir() else ""))
        self.path, self.tagger = path, make_tagger(tagger)
        tags = f"{self.tagger.name}/{self.tagger.version}"
        index = TableIndex(file, f"bindings {_VERSION} {column} {tags}", least=0)
        stored = index.read("hashes")
        self._hashes = self._read(column) if stored is None else stored["hashes"]
        if stored is None:
            index.write("hashes", hashes=self._hashes)
        # captions of a set are asked about once per model
        self.bindings = functools.cache(lambda caption: find(self.tagger(caption)))

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, binding: Binding) -> bool:
        value = _hash(binding)
        index = int(np.searchsorted(self._hashes, value))
        return index < len(self._hashes) and int(self._hashes[index]) == value

    def _read(self, column: str) -> np.ndarray:
        """Sorted hashes of all bindings, int64."""
        known, new, number = np.zeros(0, np.int64), array.array("q"), 0
        line = Line(wait=3.0)
        for number, caption in enumerate(_captions(self.path, column), start=1):
            new.extend(map(_hash, find(self.tagger(caption))))
            if number % _AT_ONCE == 0:
                known, new = np.union1d(known, new), array.array("q")
            if line.is_due():
                line.show(f"bindings of {self.path.name}: {number:,} captions")
        line.end()
        if not number:
            raise DataError(f"{self.path} holds no captions")
        return np.union1d(known, new)


def _captions(path: Path, column: str) -> Iterator[str]:
    """The captions of a prepared folder, or of a table, row by row."""
    if path.is_dir():
        source = shards.ShardsSource(path=path)
        rows = (source[index].captions for index in range(len(source)))
    else:
        rows = (texts.values() for _, texts in caption_files.rows(path, column))
    return (text for text in itertools.chain.from_iterable(rows) if isinstance(text, str))


def group(training: Training, caption: str, wrong: Iterable[str]) -> str:
    """The group of a case: which side has bindings that occur in training.

    Counted are the bindings in which the caption and a wrong caption differ. The caption is seen if
    all of its own occur, a wrong caption likewise, and of several one is enough. A side without a
    binding of its own counts as seen. "no binding differs": neither side has one.
    """
    own = training.bindings(caption)
    others = [training.bindings(text) for text in wrong]
    differing = [(own - other, other - own) for other in others if own != other]
    if not differing:
        return NONE
    is_seen = all(binding in training for side, _ in differing for binding in side)
    is_wrong_seen = any(all(b in training for b in side) for _, side in differing)
    return GROUPS[is_seen, is_wrong_seen]


def _hash(binding: Binding) -> int:
    text = "\0".join(binding).encode("utf-8", "surrogatepass")
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)
