"""Tokens as a reader sees them: what to write beside each column of a text."""

from collections.abc import Sequence

from input_pipeline.tokenizers.tokenizers import Tokenizer

START, END = "(start)", "(end)"
_EDGES = ("</w>", "▁", "Ġ")  # how CLIP's BPE, SentencePiece and GPT-2's BPE write that a word ends


def labels(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[str]]:
    """Per text and token, up to its end, the piece of text that the token stands for.

    A token without a name in the vocabulary, a byte, is "#" and its id.
    """
    names = {index: name for name, index in tokenizer.vocabulary().items()}
    rows = []
    for ids in tokenizer(texts):
        row = []
        for index in ids.tolist():
            if index == tokenizer.eos_id:
                row.append(END)
                break
            row.append(_plain(names.get(index, f"#{index}"), is_first=not row))
        rows.append(row)
    return rows


def _plain(name: str, is_first: bool) -> str:
    if is_first and name[:1] + name[-1:] in ("<>", "[]") and len(name) > 2:
        return START
    for edge in _EDGES:
        name = name.replace(edge, "")
    return name
