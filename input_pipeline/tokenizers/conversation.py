"""A tokenizer of conversations about an image, which marks the tokens of answers (LLaVA-1.5)."""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from input_pipeline.record import DataError
from input_pipeline.tokenizers import decoder, hugging_face, sentence_piece, tokenizer

START = '[["'  # of a text that is a conversation
START_TOKENS = ("<s>", "<|begin_of_text|>")


class ConversationTokenizer:
    """Ids and marks of the text behind an image: 1 on the tokens of answers, 0 elsewhere.

    A text that starts with `[["` is a conversation [[question, answer], ...] in JSON (the source
    `llava` with answers=conversation), in the template of Vicuna 1.5 without what stands before the
    image:
        \\n{question} ASSISTANT: {answer}</s>USER: {question} ASSISTANT: {answer}</s>
    and the end token of an answer is marked, too. Every other text is a caption in the template of
    LLaVA's first stage: the caption and a line end, all marked, then an unmarked end token. What is
    longer than `context_length` is cut, and its last token is an unmarked end token.

    path: a SentencePiece model (tokenizer.model), a Hugging Face tokenizer.json, or their folder.
    eos_token, pad_token: as in those tokenizers. No start token is added.
    question, answer: with them a text that is no conversation is a caption, which takes the place
      of {} in the question: [[question, answer]], as VQAScore asks.
    Raises ValueError for a question without {}, DataError for a caption too long to be asked about.
    """

    def __init__(
        self,
        context_length: int,
        path: str | Path,
        eos_token: str | None = None,
        pad_token: str | None = None,
        question: str = "",
        answer: str = "Yes",
    ) -> None:
        if question and "{}" not in question:
            raise ValueError(f"a question has {{}} in the place of the caption; got {question!r}")
        self._question, self._answer = question, answer
        self._decoder = decoder.DecoderTokenizer(path)
        # end and padding token as the files of a folder say
        is_model = self._decoder.path.suffix == ".model"
        kind = sentence_piece.SentencePieceTokenizer if is_model else hugging_face.HfTokenizer
        path = self._decoder.path if is_model else path
        plain = kind(context_length, path=path, eos_token=eos_token, pad_token=pad_token)
        self._plain = plain
        self.context_length = context_length
        asked = f" {question!r} {answer!r}" if question else ""
        self.fingerprint = plain.fingerprint + asked
        self.pad_id, self.eos_id, self.vocab_size = plain.pad_id, plain.eos_id, plain.vocab_size

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        """int32 (texts, context_length). Raises DataError for a conversation that is none."""
        rows = [self._row(text)[0] for text in texts]
        return tokenizer.pack(rows, self.context_length, self.pad_id, self.eos_id)

    def marks(self, texts: Sequence[str]) -> np.ndarray:
        """int8 (texts, context_length), 1 on the tokens of answers."""
        marks = np.zeros((len(texts), self.context_length), np.int8)
        for row, text in zip(marks, texts, strict=True):
            found = self._row(text)[1]
            row[: len(found)] = found[: self.context_length]
            if len(found) > self.context_length:
                row[-1] = 0
        return marks

    def before_image(self, text: str) -> tuple[int, ...]:
        """Ids of the start token, if the vocabulary has one, and of the text before an image, which
        LLaVA's own code tokenizes apart from that behind it."""
        words = self._decoder
        start = [words.id_of(name) for name in START_TOKENS if name in words][:1]
        return (*start, *words.encode(text))

    def vocabulary(self) -> dict[str, int]:
        """That of the file."""
        return self._plain.vocabulary()

    def _row(self, text: str) -> tuple[list[int], list[int]]:
        """Ids, the end token included, and their marks."""
        encode, is_conversation = self._decoder.encode, text.startswith(START)
        if not is_conversation and not self._question:
            ids = encode(f"{text}\n" if text else "")
            return [*ids, self.eos_id], [1] * len(ids) + [0]
        asked = [[self._question.replace("{}", text), self._answer]]
        ids, marks = [], []
        for index, (question, answer) in enumerate(_turns(text) if is_conversation else asked):
            prompt = f"{'USER: ' if index else chr(10)}{question} ASSISTANT:"
            # at once: the last token of the prompt may be another one before an answer
            both = encode(f"{prompt} {answer}")
            same = decoder.common_prefix(encode(prompt), both)
            ids += [*both, self.eos_id]
            marks += [0] * same + [1] * (len(both) - same + 1)
        if not is_conversation and len(ids) > self.context_length:
            raise DataError(  # cut, it would have no answer, whose score is the best there is
                f"a caption and the question about it have {len(ids)} tokens, more than the "
                f"context_length {self.context_length}: set a longer config.text.context_length, "
                f"or shorten {text[:60]!r}"
            )
        return ids, marks


def _turns(text: str) -> list[list[str]]:
    try:
        turns = json.loads(text)
    except (ValueError, RecursionError):
        turns = None
    is_valid = isinstance(turns, list) and all(
        isinstance(turn, list) and len(turn) == 2 and all(isinstance(x, str) for x in turn)
        for turn in turns
    )
    if not is_valid:
        raise DataError(
            f"a text that starts with {START} is a conversation, [[question, answer], ...] in "
            f"JSON; got {text[:80]!r}: write one with the source llava, answers=conversation"
        )
    return turns
