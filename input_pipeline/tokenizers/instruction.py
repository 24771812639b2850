"""Tokenizer of InstructBLIP: a question in two vocabularies, the Q-Former's and the decoder's."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from vlc_jax.input_pipeline.record import Caption, Conversation, DataError
from vlc_jax.input_pipeline.tokenizers import hugging_face
from vlc_jax.input_pipeline.tokenizers.conversation import ConversationTokenizer

TEMPLATE = "{question}"
# A row holds -2 - i for a token i of the Q-Former and -1 for its padding (models/instructblip.py).
_FIRST, _PADDING = -2, -1


class InstructionTokenizer(ConversationTokenizer):
    """Ids and marks of conversations, as in ConversationTokenizer, behind those of the question in
    BERT's vocabulary.

    The first half of a row is the first question for the Q-Former, with BERT's [CLS] and [SEP],
    below 0 and without marks; a caption has an empty one. The second half is the text behind the
    image, which begins with the start token.

    instruction_path: the tokenizer.json of the Q-Former, or its folder.
    start_token: the name of the start token; "": none.
    Other arguments as in ConversationTokenizer. Raises ValueError for an odd context_length,
    DataError for a question with more tokens than half of it.
    """

    def __init__(
        self,
        context_length: int,
        path: str | Path,
        instruction_path: str | Path,
        start_token: str = "",
        eos_token: str | None = None,
        pad_token: str | None = None,
        question: str = "",
        answer: str = "Yes",
        template: str = TEMPLATE,
        terminators: Sequence[str] = (),
    ) -> None:
        if context_length % 2:
            raise ValueError(
                f"half of a row is the question for the Q-Former: config.text.context_length is "
                f"even; got {context_length}"
            )
        super().__init__(
            context_length,
            path,
            eos_token,
            pad_token,
            terminators,
            question=question,
            answer=answer,
            template=template,
            later=template,
        )
        file = Path(instruction_path)
        self._instruction, data = hugging_face.open_hf(
            file / "tokenizer.json" if file.is_dir() else file
        )
        self._first = [self._decoder.id_of(start_token)] if start_token else []
        digest = hashlib.sha256(data).hexdigest()
        self.fingerprint += f" behind {digest}, start {self._first}"

    def prompt(self, question: str) -> list[int]:
        """Ids of the question in both vocabularies; for "" an empty one, and the start token."""
        behind = super().prompt(question) if question else self._first
        return [*self._asked(question), *behind]

    @property
    def _room(self) -> int:
        return self.context_length // 2

    def _row(self, text: Caption) -> tuple[list[int], list[int]]:
        if self.texts.question and not isinstance(text, Conversation):
            text = self.texts.scored(text)
        asked = self._asked(text.turns[0][0] if isinstance(text, Conversation) else "")
        ids, marks = super()._row(text)
        return [*asked, *ids], [0] * len(asked) + marks

    def _asked(self, question: str) -> list[int]:
        """The first half of a row."""
        ids = self._instruction.encode(question).ids
        if len(ids) > self._room:
            raise DataError(
                f"a question has {len(ids)} tokens of the Q-Former, more than half of "
                f"config.text.context_length={self.context_length}: set a longer one, or shorten "
                f"{question[:60]!r}"
            )
        return [*(_FIRST - i for i in ids), *[_PADDING] * (self._room - len(ids))]

    def _start(self) -> list[int]:
        return self._first

    def _behind_image(self, text: str) -> list[int]:
        return [*self._first, *super()._behind_image(text)]
