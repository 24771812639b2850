"""Captions with parts of speech written by hand."""

import json

import pytest

from vlc_jax.input_pipeline.hard_texts import edit

# caption -> (TAG/POS of each token, noun chunks as [first token, last + 1))
TAGGED = {
    "A young boy quickly threw the red ball over a very tall fence.": (
        "DT/DET JJ/ADJ NN/NOUN RB/ADV VBD/VERB DT/DET JJ/ADJ NN/NOUN IN/ADP DT/DET RB/ADV JJ/ADJ"
        " NN/NOUN ./PUNCT",
        [[0, 3], [5, 8], [9, 13]],
    ),
    "An old cat sat near a red apple.": (
        "DT/DET JJ/ADJ NN/NOUN VBD/VERB IN/ADP DT/DET JJ/ADJ NN/NOUN ./PUNCT",
        [[0, 3], [5, 8]],
    ),
    "a yellow and blue hydrant": ("DT/DET JJ/ADJ CC/CCONJ JJ/ADJ NN/NOUN", [[0, 5]]),
    "Two dogs are running, while three cats are sleeping.": (
        "CD/NUM NNS/NOUN VBP/AUX VBG/VERB ,/PUNCT IN/SCONJ CD/NUM NNS/NOUN VBP/AUX VBG/VERB"
        " ./PUNCT",
        [[0, 2], [6, 8]],
    ),
    "The big dog and the tiny cat isn't here": (
        "DT/DET JJ/ADJ NN/NOUN CC/CCONJ DT/DET JJ/ADJ NN/NOUN VBZ/VERB RB/PART RB/ADV",
        [[0, 3], [4, 7]],
    ),
    "a dog near a dog.": ("DT/DET NN/NOUN IN/ADP DT/DET NN/NOUN ./PUNCT", [[0, 2], [3, 5]]),
    "a dog near a dog by a cat": (
        "DT/DET NN/NOUN IN/ADP DT/DET NN/NOUN IN/ADP DT/DET NN/NOUN",
        [[0, 2], [3, 5], [6, 8]],
    ),
    "a man and a woman near a dog": (
        "DT/DET NN/NOUN CC/CCONJ DT/DET NN/NOUN IN/ADP DT/DET NN/NOUN",
        [[0, 2], [3, 5], [6, 8]],
    ),
    "a big and a small dog": ("DT/DET JJ/ADJ CC/CCONJ DT/DET JJ/ADJ NN/NOUN", [[0, 2], [3, 6]]),
    "a dog": ("DT/DET NN/NOUN", [[0, 2]]),
}


@pytest.fixture(scope="session")
def tags(tmp_path_factory):
    """The tagger of the captions of TAGGED, as an option: "precomputed:FILE"."""
    path = tmp_path_factory.mktemp("tags") / "tags.jsonl"
    lines = [{"tagger": "by hand", "version": "1"}]
    for caption, (parts, chunks) in TAGGED.items():
        tokens, stop = [], 0
        for text, part in zip(edit.treebank(caption), parts.split(), strict=True):
            start = caption.index(text, stop)
            stop = start + len(text)
            tag, pos = part.split("/")
            tokens.append({"text": text, "tag": tag, "pos": pos, "start": start, "stop": stop})
        lines.append({"caption": caption, "tokens": tokens, "noun_chunks": chunks})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"precomputed:{path}"
