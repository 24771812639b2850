"""Token ids are those of the reference tokenizer, on captions of every kind."""

import json
import random

import numpy as np
import pytest

from input_pipeline.text.tokenizers import ClipTokenizer

pytestmark = pytest.mark.slow

PIECES = [
    *("a", "photo", "of", "the", "dog", "on", "left", "RED", "T-shirt", "it's", "they'll", "we've"),
    *("naïve", "café", "Zürich", "façade", "señor", "Ångström", "Straße", "œuvre", "ﬁne", "½"),
    *(
        "😀",
        "👩‍🚀",
        "🇫🇷",
        "❤️",
        "中文字幕",
        "日本語",
        "한국어",
        "العربية",
        "עברית",
        "हिन्दी",
        "Ελλάδα",
    ),
    *("&amp;", "&lt;b&gt;", "&quot;", "&#39;", "&amp;amp;", "&eacute;", "AT&T", "<br>", "R&B"),
    *("Ã©tÃ©", "donâ€™t", "“quoted”", "‘so’", "…", "—", "100%", "3.14", "1,000", "#tag", "@you"),
    *(
        "\t",
        "\n",
        "  ",
        "\u00a0",
        "\u200b",
        "\u3000",
        "ｆｕｌｌ",
        "e\u0301",
        "x\x1b[31mred",
        "\ufeff",
    ),
    *("http://a.b/c?d=e", "supercalifragilisticexpialidocious", "!!!", "....", "'", '"', "(", ")"),
]


def captions() -> list[str]:
    rng = random.Random(0)
    made = ["", " ", *PIECES, "word " * 200, "é" * 300, "😀" * 60]
    while len(made) < 2000:
        joint = rng.choice([" ", " ", " ", "", ", "])
        made.append(joint.join(rng.choices(PIECES, k=rng.choice([2, 5, 10, 20, 60]))))
    return made


def reference_ids(there, tmp_path, texts, *folder):
    (tmp_path / "captions.json").write_text(json.dumps(texts))
    there("tokenize_captions.py", tmp_path / "captions.json", tmp_path / "ids.npz", *folder)
    with np.load(tmp_path / "ids.npz") as theirs:
        return dict(theirs)


def test_clip_ids_are_those_of_open_clip_on_two_thousand_captions(there, tmp_path):
    texts = captions()
    theirs = reference_ids(there, tmp_path, texts)
    ours = ClipTokenizer(77, path=str(theirs["vocabulary"]))(texts)
    pairs = zip(texts, ours, theirs["ids"], strict=True)
    wrong = [text for text, a, b in pairs if (a != b).any()]
    assert not wrong, wrong[:5]


def test_exported_files_give_our_ids_in_transformers(there, tmp_path):
    """On plain captions: its CLIPTokenizer repairs no Unicode, and pads with the end token."""
    words = [word for word in PIECES if word.isascii() and word.isprintable() and "&" not in word]
    rng = random.Random(1)
    texts = [" ".join(rng.choices(words, k=rng.choice([1, 4, 12, 90]))) for _ in range(500)]
    vocabulary = str(reference_ids(there, tmp_path, texts)["vocabulary"])
    tokenizer = ClipTokenizer(77, path=vocabulary)
    (tmp_path / "exported").mkdir()
    for name, content in tokenizer.files().items():
        (tmp_path / "exported" / name).write_text(content, "utf-8")
    theirs = reference_ids(there, tmp_path, texts, tmp_path / "exported")["ids"]
    ours = tokenizer(texts)
    ended = np.cumsum(ours == tokenizer.eos_id, axis=1) > 0
    np.testing.assert_array_equal(np.where(ended, tokenizer.eos_id, ours), theirs)
