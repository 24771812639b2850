"""Taggers: parts of speech and noun phrases of captions.

`make_tagger("spacy:en_core_web_sm")` builds a tagger from KIND:ARGUMENT. There is no silent
fallback: a tagger that cannot run raises.

`vlc-jax tag` writes the file of "precomputed:FILE".
"""

import importlib.metadata
import importlib.util
import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from vlc_jax.input_pipeline import lookup, stores
from vlc_jax.input_pipeline.hard_texts.generator import Tagged, Tagger, Token
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.scenes import grammar
from vlc_jax.input_pipeline.scenes import world as worlds
from vlc_jax.input_pipeline.sources import id_index, tables

NOUN_TAGS = ("NN", "NNS", "NNP", "NNPS")
ADJECTIVE_TAGS = ("JJ", "JJR", "JJS")
NAME_TAGS = ("NNP", "NNPS")
# Held while a pipeline or model is loaded: the loader's threads share it, and all of them ask for
# it first. transformers loads under a default device of the process, which the next thread sees.
LOADING = threading.Lock()

_PENN = {
    "DET": "DT", "ADJ": "JJ", "NOUN": "NN", "ADP": "IN", "CCONJ": "CC", "NUM": "CD",
    "PRON": "PRP", "VERB": "VBP",
}  # fmt: skip


def make_tagger(spec: str) -> Tagger:
    """Builds the tagger KIND:ARGUMENT: "spacy:PIPELINE", "precomputed:FILE" or "scenes:WORLD".

    Raises ValueError for an unknown or missing tagger, DataError for a broken file.
    """
    kind, _, argument = spec.partition(":")
    lookup.check_known("tagger", [kind], TAGGERS)
    make, example = TAGGERS[kind]
    if not argument:
        raise ValueError(f"tagger {spec!r} has no argument; write for example {kind}:{example}")
    return make(argument)


class SpacyTagger:
    """A spaCy pipeline, by package name or folder; loaded at the first call."""

    def __init__(self, pipeline: str) -> None:
        self.name = f"spacy:{pipeline}"
        self._pipeline = pipeline
        self._loaded: Any = None
        if importlib.util.find_spec("spacy") is None:
            raise ValueError(
                f"tagger {self.name!r} needs spaCy: pip install spacy, then "
                f"python -m spacy download {pipeline}; or use precomputed:FILE"
            )
        meta = Path(pipeline) / "meta.json"
        try:
            if meta.is_file():
                version = json.loads(meta.read_text("utf-8"))["version"]
            else:
                version = importlib.metadata.version(pipeline)
        except importlib.metadata.PackageNotFoundError as error:
            raise ValueError(
                f"spaCy's pipeline {pipeline!r} is not installed and no folder with a meta.json: "
                f"python -m spacy download {pipeline}; or use precomputed:FILE"
            ) from error
        self.version = f"{importlib.metadata.version('spacy')}/{version}"

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}

    def __call__(self, caption: str) -> Tagged:
        """Raises ValueError if the pipeline lacks tags, parts of speech or noun phrases."""
        with LOADING:
            if self._loaded is None:
                import spacy

                self._loaded = spacy.load(self._pipeline, exclude=["ner", "lemmatizer"])
        document = self._loaded(caption)
        for what, component in (("TAG", "tagger"), ("POS", "attribute_ruler"), ("DEP", "parser")):
            if len(document) and not document.has_annotation(what):
                raise ValueError(
                    f"spaCy's pipeline {self._pipeline!r} gives no {what}: it has no {component}; "
                    f"its components are {self._loaded.pipe_names}"
                )
        # spaCy has tokens for double spaces; dropping them shifts the indices of chunks.
        words = [token for token in document if not token.is_space]
        index = {token.i: i for i, token in enumerate(words)}
        tokens = [Token(t.text, t.tag_, t.pos_, t.idx, t.idx + len(t)) for t in words]
        chunks = [[index[t.i] for t in chunk if t.i in index] for chunk in document.noun_chunks]
        return Tagged(tuple(tokens), tuple((c[0], c[-1] + 1) for c in chunks if c))


class ScenesTagger:
    """Exact parts of speech of captions of the embedded scenes, from their grammar."""

    def __init__(self, world: str) -> None:
        lookup.check_known("world", [world], worlds.WORLDS)
        self.name, self.version = f"scenes:{world}", "1"
        # depth > 0 adds the words for depth
        self._world = worlds.named(world, depth=0.5)

    def __call__(self, caption: str) -> Tagged:
        """Raises DataError for a caption outside the world's grammar."""
        parsed = grammar.parse(caption, self._world)
        if parsed is None or parsed.text != caption:
            raise DataError(
                f"the caption {caption!r} is outside the grammar of {self._world.name!r}; "
                "tag captions of other sources with spacy:... or precomputed:..."
            )
        tokens, start = [], 0
        for word, pos in grammar.tags(parsed):
            is_plural = pos == "NOUN" and parsed.kind == "count" and parsed.link != "one"
            tokens.append(
                Token(word, "NNS" if is_plural else _PENN[pos], pos, start, start + len(word))
            )
            start += len(word) + 1
        return Tagged(tuple(tokens), tuple(_noun_runs(tokens)))


def _noun_runs(tokens: list[Token]) -> Iterable[tuple[int, int]]:
    """Runs of determiner or number, adjectives, noun: the only noun phrases of the grammar."""
    start = 0
    for i, token in enumerate(tokens):
        if token.pos in ("DET", "NUM"):
            start = i
        elif token.pos == "NOUN":
            yield start, i + 1


class PrecomputedTagger:
    """Tags from a file of JSON lines, written by `write_tags`.

    The first line is {"tagger": name, "version": version}, every other line {"caption", "tokens":
    [{"text", "tag", "pos", "start", "stop"}], "noun_chunks": [[first token, last + 1]]}. Only an
    index is held in memory; each call reads its row.
    """

    def __init__(self, path: str) -> None:
        try:
            self._rows = tables.JsonLinesTable(Path(path))
        except OSError as error:
            raise DataError(
                f"file of tags {path} cannot be read ({error.strerror}); write it with vlc-jax tag"
            ) from error
        if len(self._rows) < 2:
            raise DataError(f"file of tags {path} holds no caption")
        head = self._row(0, "tagger", "version")
        captions = (self._row(row, "caption")["caption"] for row in range(1, len(self._rows)))
        self._places = id_index.IdIndex(id_index.hash_ids(captions))
        self.name = f"precomputed:{head['tagger']}"
        self.version = f"{head['version']}/{self._rows.digest[:12]}"

    def __call__(self, caption: str) -> Tagged:
        """Raises DataError for a caption missing from the file, and for a broken row."""
        for place in self._places[caption]:
            row = self._row(place + 1, "caption", "tokens", "noun_chunks")
            if row["caption"] == caption:
                return self._tagged(row)
        raise DataError(
            f"file of tags {self._rows.path} has no caption {caption!r}; write it again with all "
            "captions (vlc-jax tag)"
        )

    def _row(self, index: int, *fields: str) -> dict[str, Any]:
        row, where = self._rows[index], f"file of tags: {self._rows.name(index)}"
        if missing := [field for field in fields if field not in row]:
            raise DataError(f"{where}: no field {missing[0]!r}")
        if not isinstance(row.get("caption", ""), str):
            raise DataError(f"{where}: a caption is a text; got {row['caption']!r:.80}")
        return row

    def _tagged(self, row: dict[str, Any]) -> Tagged:
        caption = row["caption"]
        try:
            tokens = tuple([Token(**fields) for fields in row["tokens"]])
            chunks = tuple([(int(start), int(stop)) for start, stop in row["noun_chunks"]])
            texts = [caption[token.start : token.stop] for token in tokens]
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"file of tags {self._rows.path}, caption {caption!r}: a token has the fields "
                f"{Token._fields}, a noun chunk two numbers ({error})"
            ) from error
        for token, text in zip(tokens, texts, strict=True):
            if text != token.text:
                raise DataError(
                    f"{self._rows.path}, caption {caption!r}: wrong position of {token}"
                )
        return Tagged(tokens, chunks)


def write_tags(path: Path, tagger: Tagger, captions: Iterable[str]) -> None:
    """Writes the file for "precomputed:PATH": every caption once, in order."""
    with stores.replacing(path) as file:
        head = {"tagger": tagger.name, "version": tagger.version}
        file.write(json.dumps(head) + "\n")
        for caption in dict.fromkeys(captions):
            tagged = tagger(caption)
            row = {
                "caption": caption,
                "tokens": [token._asdict() for token in tagged.tokens],
                "noun_chunks": tagged.noun_chunks,
            }
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


# kind -> (class, example of its argument)
TAGGERS: dict[str, tuple[Callable[[str], Tagger], str]] = {
    "spacy": (SpacyTagger, "en_core_web_sm"),
    "precomputed": (PrecomputedTagger, "tags.jsonl"),
    "scenes": (ScenesTagger, "scenes-mini"),
}
