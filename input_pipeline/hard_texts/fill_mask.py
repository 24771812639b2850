"""SVLC's hard negatives by a masked language model, which proposes replacements of a word.

Doveh et al., "Teaching structured vision & language concepts to vision & language models"
(CVPR 2023), section 3.1 ("LLM-based negatives") and the authors' code.
"""

import hashlib
import importlib.util
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.hard_texts import edit, word_tables
from vlc_jax.input_pipeline.hard_texts.generator import CaptionGenerator, Tagger, Token
from vlc_jax.input_pipeline.hard_texts.taggers import LOADING, make_tagger

PARTS = ("NOUN", "PROPN", "ADP", "ADJ", "VERB", "ADV", "NUM", "PRON", "DET", "AUX")
# The authors' limits, in characters: longer captions than _LONGEST are cut to _CUT.
_LONGEST = 512
_CUT = 100


class SvlcFillMask(CaptionGenerator):
    """SVLC's second generator; needs the package transformers and torch.

    model   folder of a Hugging Face masked language model (the authors: distilroberta-base)
    tagger  for parts of speech (the authors: spacy:en_core_web_sm)
    parts   universal parts of speech of the words that may be replaced
    top     number of proposals of the model from which a replacement is drawn

    Mode "authors" drops the punctuation of the caption and returns the model's whole text. Mode
    "clean" replaces only the word, corrects case and articles, and drops proposals that are no
    whole word or do not contradict the old one. Neither detects synonyms reliably.
    """

    name = "svlc_fill_mask"

    def __init__(
        self,
        model: str,
        tagger: str = "spacy:en_core_web_sm",
        parts: Sequence[str] = ("NOUN", "ADP", "ADJ", "VERB"),
        top: int = 5,
        mode: str = "clean",
    ) -> None:
        edit.check_mode(mode)
        lookup.check_known("part of speech", parts, PARTS)
        if top < 1:
            raise ValueError(f"top is {top}; take at least 1, the authors take 5")
        missing = [p for p in ("transformers", "torch") if importlib.util.find_spec(p) is None]
        if missing:
            raise ValueError(f"svlc_fill_mask needs {missing[0]}: pip install transformers torch")
        if not (Path(model) / "config.json").is_file():
            raise ValueError(
                f"model {model!r} is no folder with a config.json; download one, for example "
                "distilbert/distilroberta-base, and name its folder"
            )
        self._model, self._parts, self._top = model, tuple(parts), top
        self._is_clean = mode == "clean"
        self._loaded: Any = None
        self._tagger: Tagger = make_tagger(tagger)
        tags = f"{self._tagger.name}@{self._tagger.version}"
        self.version = edit.version(
            "1", mode=mode, model=_fingerprint(Path(model)), parts=",".join(parts), top=top,
            tagger=tags,
        )  # fmt: skip

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_loaded": None}

    def texts(self, caption: str, rng: np.random.Generator, count: int) -> Sequence[str]:
        """Up to `count` texts; each draws a word, then a proposal for it."""
        make = self._clean if self._is_clean else self._authors
        return edit.distinct(make(caption, rng, count), caption)

    def _fill(self, text: str) -> list[dict[str, Any]]:
        """The model's proposals for the single mask of the text, most likely first."""
        return self._pipeline()(text, top_k=self._top)

    def _pipeline(self) -> Any:
        with LOADING:
            if self._loaded is None:
                import transformers

                self._loaded = transformers.pipeline("fill-mask", model=self._model)
        return self._loaded

    def _mask(self) -> str:
        return self._pipeline().tokenizer.mask_token

    def _authors(self, caption: str, rng: np.random.Generator, count: int) -> list[str]:
        if len(caption) > _LONGEST:
            caption = caption[:_CUT]
        bare = caption.translate(str.maketrans("", "", string.punctuation)).split()
        if not bare:
            return []
        tokens = self._tagger(" ".join(bare)).tokens
        present = set(caption.split())
        words = dict.fromkeys(t.text for t in tokens if t.pos in self._parts and t.text in present)
        # A part of a word, split by the tagger, is not in `bare`: the authors' code fails there.
        words = [word for word in words if word in bare]
        texts = []
        for _ in range(count if words else 0):
            word = words[int(rng.integers(len(words)))]
            positions = [i for i, other in enumerate(bare) if other == word]
            position = positions[int(rng.integers(len(positions)))]
            masked = [*bare[:position], self._mask(), *bare[position + 1 :]]
            fills = self._fill(" ".join(masked))
            fills = [fill for fill in fills if fill["token_str"].strip(" ") != word]
            if fills:
                texts.append(fills[int(rng.integers(len(fills)))]["sequence"])
        return texts

    def _clean(self, caption: str, rng: np.random.Generator, count: int) -> list[str]:
        tokens = self._tagger(caption).tokens
        tokens = [token for token in tokens if token.pos in self._parts and token.text.isalpha()]
        texts: list[str] = []
        for i in rng.permutation(len(tokens)):
            if len(texts) == count:
                break
            token: Token = tokens[i]
            masked = edit.apply(caption, [(token.start, token.stop, self._mask())])
            old = token.text.lower()
            fills = [fill["token_str"] for fill in self._fill(masked)]
            if token.start > 0 and any(fill.startswith(" ") for fill in fills):
                # Proposals without a space continue the word before.
                fills = [fill for fill in fills if fill.startswith(" ")]
            fills = [fill.strip() for fill in fills]
            fills = [
                f for f in fills if f.isalpha() and not word_tables.same_meaning(f.lower(), old)
            ]
            if fills:
                new = edit.like(fills[int(rng.integers(len(fills)))], token.text)
                texts.append(edit.repaired(caption, [(token.start, token.stop, new)]))
        return texts


def _fingerprint(folder: Path) -> str:
    """Hash of the model's files, independent of the folder's name."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix in (".json", ".txt", ".bin", ".safetensors"):
            digest.update(path.name.encode())
            with path.open("rb") as file:
                while block := file.read(1 << 20):
                    digest.update(block)
    return digest.hexdigest()[:12]
