"""Taggers: parts of speech and noun phrases of captions.

`make_tagger("spacy:en_core_web_sm")` builds a tagger from KIND:ARGUMENT. There is no silent
fallback: a tagger that cannot run raises.

`vlc-jax tag` writes the file of "precomputed:FILE".
"""

import hashlib
import importlib.metadata
import importlib.util
import json
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline import lookup, stores
from vlc_jax.input_pipeline.hard_texts.generator import Tagged, Tagger, Token
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.scenes import grammar
from vlc_jax.input_pipeline.scenes import world as worlds

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
    index is held in memory (16 bytes per caption); each call reads its row.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        keys, offsets, digest, offset = [], [], hashlib.sha256(), 0
        try:
            with self._path.open("rb") as file:
                for row, line in enumerate(file):
                    digest.update(line)
                    if row == 0:
                        head = self._parse(line, 0, ("tagger", "version"))
                    else:
                        keys.append(_key(self._parse(line, row, ("caption",))["caption"]))
                        offsets.append(offset)
                    offset += len(line)
        except OSError as error:
            raise DataError(
                f"file of tags {path} cannot be read ({error.strerror}); write it with vlc-jax tag"
            ) from error
        if not offsets:
            raise DataError(f"file of tags {path} holds no caption")
        order = np.argsort(np.array(keys, np.uint64), kind="stable")
        self._keys = np.array(keys, np.uint64)[order]
        self._offsets = np.array(offsets, np.int64)[order]
        self.name = f"precomputed:{head['tagger']}"
        self.version = f"{head['version']}/{digest.hexdigest()[:12]}"

    def __call__(self, caption: str) -> Tagged:
        """Raises DataError for a caption missing from the file, and for a broken row."""
        index = int(np.searchsorted(self._keys, np.uint64(_key(caption))))
        if index < len(self._keys) and self._keys[index] == np.uint64(_key(caption)):
            with self._path.open("rb") as file:
                file.seek(int(self._offsets[index]))
                line = file.readline()
            row = self._parse(line, None, ("caption", "tokens", "noun_chunks"))
            if row["caption"] == caption:
                return self._tagged(row)
        raise DataError(
            f"file of tags {self._path} has no caption {caption!r}; write it again with all "
            "captions (vlc-jax tag)"
        )

    def _parse(self, line: bytes, row: int | None, fields: tuple[str, ...]) -> dict[str, Any]:
        where = f"file of tags {self._path}" + ("" if row is None else f", line {row + 1}")
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: no JSON ({error})") from error
        missing = [field for field in fields if not isinstance(entry, dict) or field not in entry]
        if missing:
            raise DataError(f"{where}: no field {missing[0]!r}")
        if "caption" in fields and not isinstance(entry["caption"], str):
            raise DataError(f"{where}: a caption is a text; got {entry['caption']!r:.80}")
        return entry

    def _tagged(self, row: dict[str, Any]) -> Tagged:
        caption = row["caption"]
        try:
            tokens = tuple([Token(**fields) for fields in row["tokens"]])
            chunks = tuple([(int(start), int(stop)) for start, stop in row["noun_chunks"]])
            texts = [caption[token.start : token.stop] for token in tokens]
        except (TypeError, ValueError, OverflowError) as error:
            raise DataError(
                f"file of tags {self._path}, caption {caption!r}: a token has the fields "
                f"{Token._fields}, a noun chunk two numbers ({error})"
            ) from error
        for token, text in zip(tokens, texts, strict=True):
            if text != token.text:
                raise DataError(
                    f"file of tags {self._path}, caption {caption!r}: wrong position of {token}"
                )
        return Tagged(tokens, chunks)


def _key(caption: str) -> int:
    return int.from_bytes(
        hashlib.blake2b(caption.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little"
    )


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
