"""Readable labels of tokens, for the axes of figures."""

from collections.abc import Sequence

from vlc_jax.input_pipeline.tokenizers.tokenizer import Tokenizer

START, UNKNOWN, END = "(start)", "(unknown)", "(end)"
# word boundaries of CLIP's BPE, SentencePiece and GPT-2's BPE
_EDGES = ("</w>", "▁", "Ġ")


def labels(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[str]]:
    """One label per token of each text, EOS included, padding left out.

    A token without a name in the vocabulary, such as a byte, is "#" and its id.
    """
    names = {index: name for name, index in tokenizer.vocabulary().items()}
    rows = []
    for ids in tokenizer(texts):
        row = []
        for index in ids.tolist():
            if index == tokenizer.eos_id:
                row.append(END)
                break
            if index == tokenizer.unk_id:
                row.append(UNKNOWN)
                continue
            row.append(_readable(names.get(index, f"#{index}"), is_first=not row))
        rows.append(row)
    return rows


def _readable(name: str, is_first: bool) -> str:
    if is_first and name[:1] + name[-1:] in ("<>", "[]") and len(name) > 2:
        return START
    label = name
    for edge in _EDGES:
        label = label.replace(edge, "")
    # a byte that is a space is nothing but an edge
    return label or name
