"""Tokenizer of conversations about an image; marks the answer tokens (LLaVA-1.5)."""

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vlc_jax.input_pipeline import lookup
from vlc_jax.input_pipeline.record import Caption, Conversation, DataError
from vlc_jax.input_pipeline.tokenizers import decoder, hugging_face, sentence_piece
from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer

TEMPLATE = "\n{question} ASSISTANT:"  # Vicuna 1.5, between the image and the first answer
LATER = "USER: {question} ASSISTANT:"  # Vicuna 1.5, between two answers


@dataclasses.dataclass
class Template:
    """The texts around questions and answers: options of a tokenizer of conversations.

    question, answer: if set, a caption replaces {} in the question, as in VQAScore.
    template, later: text before the answer of the first turn (from the end of the image on) and of
      later turns. `separator` follows it, unless it ends with a line end.
    image_token: the name of the image token, for checkpoints trained with the whole prompt
      tokenized as one string (Hugging Face's LLaVA), where the text after the image may start with
      another token; "": the text after the image is tokenized alone, as in LLaVA's own code.
    before: the text before the image, for conversations without one; not part of the fingerprint,
      since it belongs to the model (the prefix of its head).
    """

    question: str = ""
    answer: str = "Yes"
    template: str = TEMPLATE
    later: str = LATER
    image_token: str = ""
    separator: str = " "
    before: str = ""

    def __post_init__(self) -> None:
        if self.question and "{}" not in self.question:
            raise ValueError(
                f"a question has {{}} in the place of the caption; got {self.question!r}"
            )
        if any("{question}" not in each for each in (self.template, self.later)):
            raise ValueError(
                f"a template holds {{question}}; got {self.template!r} and {self.later!r}"
            )

    def scored(self, caption: str) -> Conversation:
        """The question about a caption, with the answer to be scored."""
        return Conversation.scored(self.question.replace("{}", caption), self.answer)

    def changed(self) -> dict[str, str]:
        """Fields of a fingerprint: those that differ from Vicuna 1.5's."""
        fields = dataclasses.asdict(self) | {"before": ""}
        asked = {name: fields.pop(name) for name in ("question", "answer")}
        default = Template()
        others = {name: v for name, v in fields.items() if v != getattr(default, name)}
        return (asked if self.question else {}) | others


class ConversationTokenizer(Tokenizer):
    """Ids and marks of the text after an image: 1 on answer tokens, 0 elsewhere.

    A Conversation (the source `llava` with answers=conversation) is written in the checkpoint's
    template, such as that of Vicuna 1.5, from the end of the image on:
        \\n{question} ASSISTANT: {answer}</s>USER: {question} ASSISTANT: {answer}</s>
    The end token of an answer is marked, too, unless the conversation is to be scored without it.
    A conversation without an image starts with the start token and `before`, which otherwise
    precede the image:
        <s>{before}{question} ASSISTANT: {answer}</s>USER: ...
    A caption is in the template of LLaVA's first stage: the caption and a line end, all marked,
    then an unmarked end token. A text longer than `context_length` is cut, and its last token is an
    unmarked end token.

    path: a SentencePiece model (tokenizer.model), a Hugging Face tokenizer.json, or their folder.
    eos_token, pad_token: as in HfTokenizer and SentencePieceTokenizer. No start token is added.
    terminators: names of further tokens, beside the end token, that end an answer of the model.
    added_tokens: see DecoderTokenizer.   texts: fields of `Template`.
    Raises ValueError for a question without {}, a template without {question} or an unknown
    image_token, DataError for a question and answer to be scored that are too long.
    """

    reads_conversations = True

    @lookup.options_of(Template)
    def __init__(
        self,
        context_length: int,
        path: str | Path,
        eos_token: str | None = None,
        pad_token: str | None = None,
        terminators: Sequence[str] = (),
        added_tokens: Sequence[str] = (),
        **texts: str,
    ) -> None:
        self.texts = Template(**texts)
        self._decoder = decoder.DecoderTokenizer(path, added_tokens)
        token = self.texts.image_token
        self._image = (token, self._decoder.id_of(token)) if token else None
        # A folder, not its file: the files beside it declare the end and padding tokens.
        is_model = self._decoder.path.suffix == ".model"
        kind = sentence_piece.SentencePieceTokenizer if is_model else hugging_face.HfTokenizer
        path = self._decoder.path if is_model else path
        special = {"eos_token": eos_token, "pad_token": pad_token}
        special |= {"added_tokens": added_tokens} if added_tokens else {}
        plain = kind(context_length, path=path, **special)
        self._plain = plain
        self.context_length = context_length
        self.pad_id, self.eos_id, self.vocab_size = plain.pad_id, plain.eos_id, plain.vocab_size
        self._terminators = (self.eos_id, *map(self._decoder.id_of, terminators))
        changed = self.texts.changed()
        self.fingerprint = plain.fingerprint + (f" {changed}" if changed else "")

    @property
    def terminators(self) -> tuple[int, ...]:
        return self._terminators

    def rows(self, texts: Sequence[Caption]) -> list[list[int]]:
        """Ids of each text, the end token included."""
        return [self._row(text)[0] for text in texts]

    def marks(self, texts: Sequence[Caption]) -> np.ndarray:
        """int8 (texts, context_length), 1 on the tokens of answers."""
        marks = np.zeros((len(texts), self.context_length), np.int8)
        for row, text in zip(marks, texts, strict=True):
            text_marks = self._row(text)[1]
            row[: len(text_marks)] = text_marks[: self.context_length]
            if len(text_marks) > self.context_length:
                row[-1] = 0
        return marks

    def before_image(self, text: str) -> tuple[int, ...]:
        """Ids of the start token, if the vocabulary has one, and of the text before an image.

        LLaVA's own code tokenizes the texts before and after the image separately."""
        return (*self._start(), *self._decoder.encode(text))

    def prompt(self, question: str) -> list[int]:
        """Ids between an image and the answer to a question; for "" none: a caption follows."""
        return self._behind_image(self._prompt(question)) if question else []

    def decode(self, ids: Sequence[int], special: bool = False) -> str:
        """The text of ids, special tokens left out unless `special`."""
        return self._decoder.decode(ids, special)

    def vocabulary(self) -> dict[str, int]:
        """Token -> id as in the file."""
        return self._plain.vocabulary()

    def _row(self, text: Caption) -> tuple[list[int], list[int]]:
        """Ids, the end token included, and their marks."""
        if isinstance(text, Conversation):
            return self._talk(text)
        if self.texts.question:
            return self._talk(self.texts.scored(text))
        ids = self._behind_image(f"{text}\n" if text else "")
        return [*ids, self.eos_id], [1] * len(ids) + [0]

    def _talk(self, talk: Conversation) -> tuple[list[int], list[int]]:
        ids = [] if talk.has_image else self._start()
        marks = [0] * len(ids)
        for index, (question, answer) in enumerate(talk.turns):
            prompt = self._prompt(question, is_first=index == 0)
            encode = self._decoder.encode
            if index == 0 and talk.has_image:
                encode = self._behind_image
            elif index == 0:  # the template's line end separates image and question
                prompt = self.texts.before + prompt.removeprefix("\n")
            # prompt and answer in one call: alone, the prompt's last token may be another one
            between = "" if prompt.endswith("\n") else self.texts.separator
            both = encode(f"{prompt}{between}{answer}")
            same = decoder.common_prefix(encode(prompt), both)
            ids += [*both, self.eos_id]
            marks += [0] * same + [1] * (len(both) - same) + [int(talk.marks_end)]
        if talk.is_scored and len(ids) > self._room:
            # cut before the answer it would score log p = 0, the maximum
            raise DataError(
                f"a question and its answer have {len(ids)} tokens, more than the {self._room} of "
                f"config.text.context_length={self.context_length}: set a longer one, or shorten "
                f"{talk.turns[0][0][:60]!r}"
            )
        return ids, marks

    @property
    def _room(self) -> int:
        """Columns of a row that hold a text."""
        return self.context_length

    def _start(self) -> list[int]:
        """The start token, if the vocabulary has one."""
        start = self._decoder.start_token
        return [self._decoder.id_of(start)] if start else []

    def _behind_image(self, text: str) -> list[int]:
        """Ids of a text that directly follows the image."""
        if self._image is None:
            return self._decoder.encode(text)
        token, number = self._image
        ids = self._decoder.encode(token + text)
        return ids[ids.index(number) + 1 :]

    def _prompt(self, question: str, is_first: bool = True) -> str:
        # a trailing space would be a token of its own, but merges with an answer that follows
        text = (self.texts.template if is_first else self.texts.later).rstrip(" ")
        return text.replace("{question}", question)


class ScenesConversationTokenizer(ConversationTokenizer):
    """Tokenizer of conversations about an embedded world (scenes/conversations.py).

    One id per word of the captions and questions; case and punctuation are ignored.
    """

    def __init__(
        self,
        context_length: int,
        world: str = "scenes-mini",
        question: str = "",
        answer: str = "yes",
    ) -> None:
        import tokenizers
        from tokenizers import models, normalizers, pre_tokenizers

        from vlc_jax.input_pipeline.scenes import conversations
        from vlc_jax.input_pipeline.scenes import world as worlds

        names = ("<pad>", "<unk>", *conversations.vocabulary(worlds.named(world)), "</s>")
        ids = {name: index for index, name in enumerate(names)}
        library = tokenizers.Tokenizer(models.WordLevel(ids, unk_token="<unk>"))
        library.add_special_tokens(["<pad>", "</s>"])
        library.normalizer = normalizers.Lowercase()
        library.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation(behavior="removed")]
        )
        # ConversationTokenizer reads a file
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "tokenizer.json"
            library.save(str(path))
            special = {"eos_token": "</s>", "pad_token": "<pad>"}
            super().__init__(context_length, path, **special, question=question, answer=answer)
