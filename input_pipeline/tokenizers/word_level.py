"""Word-level tokenizer: one id per word of a fixed list, such as the words of the scenes."""

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from vlc_jax.input_pipeline.stores import text_file
from vlc_jax.input_pipeline.tokenizers import as_hugging_face, tokenizer

_STRIPPED = ".,;:!?\"'()[]"  # punctuation around a word


class WordTokenizer(tokenizer.Tokenizer):
    """One id per word of a fixed list: 0 padding, 1 unknown, 2... the words, last EOS.

    Texts are lower-cased, split at white space, and stripped of punctuation around words. EOS has
    the largest id, so that argmax finds the end of a text, as in CLIP. The list is `words` or a
    text file `path` with one word per line; of captions: `frequent`.
    """

    pad_id = 0
    unk_id = 1

    def __init__(
        self, context_length: int, words: Sequence[str] = (), path: str | Path | None = None
    ) -> None:
        if bool(words) == (path is not None):
            raise ValueError("a word tokenizer needs either `words` or `path`, a file of words")
        if path is not None:
            words = text_file.decode(tokenizer.read_file(path, "word list"), Path(path)).split()
        words = list(words)
        if len(set(words)) != len(words):
            twice = next(word for word in words if words.count(word) > 1)
            raise ValueError(f"the word list holds {twice!r} twice")
        unreachable = [word for word in words if _split(word) != [word]]
        if unreachable:
            raise ValueError(
                f"the word list holds {unreachable[0]!r}; words are lower case, without spaces or "
                "surrounding punctuation, or they never match"
            )
        self.context_length = tokenizer.check_length(context_length)
        self.fingerprint = hashlib.sha256("\n".join(words).encode()).hexdigest()
        # the largest id: towers that pool by argmax, as CLIP's, find the end of the text
        self.eos_id = len(words) + 2
        self.vocab_size = len(words) + 3
        self._ids = {word: index + 2 for index, word in enumerate(words)}

    def rows(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._ids.get(word, self.unk_id) for word in _split(text)] for text in texts]

    def decode(self, ids: Sequence[int]) -> str:
        """The words of ids, joined by spaces, without EOS and padding."""
        names = {index: word for word, index in self._ids.items()} | {self.unk_id: "<unk>"}
        return " ".join(names[int(i)] for i in ids if int(i) in names)

    def vocabulary(self) -> dict[str, int]:
        """Word or special token -> id."""
        return self._ids | self._special

    @property
    def _special(self) -> dict[str, int]:
        names = as_hugging_face.PAD, as_hugging_face.UNKNOWN, as_hugging_face.END
        return dict(zip(names, (self.pad_id, self.unk_id, self.eos_id), strict=True))

    def files(self) -> dict[str, str]:
        """Files of the equivalent Hugging Face tokenizer: name -> content."""
        import tokenizers
        from tokenizers import models, normalizers, pre_tokenizers

        model = models.WordLevel(self.vocabulary(), unk_token=as_hugging_face.UNKNOWN)
        library, stripped = tokenizers.Tokenizer(model), f"[{re.escape(_STRIPPED)}]+"
        around = tokenizers.Regex(rf"(?<!\S){stripped}|{stripped}(?!\S)")
        steps = [normalizers.Lowercase(), normalizers.Replace(around, "")]
        library.normalizer = normalizers.Sequence(steps)
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        return as_hugging_face.files(library, self.context_length, self._special)


def scenes_tokenizer(context_length: int, world: str = "scenes-mini") -> WordTokenizer:
    """The words of an embedded world's caption grammar."""
    from vlc_jax.input_pipeline.scenes import words
    from vlc_jax.input_pipeline.scenes import world as worlds

    return WordTokenizer(context_length, words=words.vocabulary(worlds.named(world)))


def digits_tokenizer(context_length: int) -> WordTokenizer:
    """The words of the captions of the handwritten digits."""
    from vlc_jax.input_pipeline.sources import digits

    return WordTokenizer(context_length, words=digits.vocabulary())


def count_words(captions: Iterable[str]) -> Counter[str]:
    """Number of occurrences of each word."""
    return Counter(word for caption in captions for word in _split(caption))


def frequent(counts: Mapping[str, int], min_count: int) -> tuple[str, ...]:
    """The words of `count_words` that occur at least `min_count` times, sorted."""
    return tuple(sorted(word for word, count in counts.items() if count >= min_count))


def _split(text: str) -> list[str]:
    words = (word.strip(_STRIPPED) for word in text.lower().split())
    return [word for word in words if word]
