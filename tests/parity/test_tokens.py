"""Token ids are those of the reference tokenizer, on captions of every kind."""

import json
import os
import random
import subprocess
from pathlib import Path

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


def test_clip_ids_are_those_of_open_clip_on_two_thousand_captions(tmp_path):
    python = os.environ.get("VLC_PARITY_PYTHON")
    if not python:
        pytest.skip("VLC_PARITY_PYTHON is not set: run `make parity`")
    texts = captions()
    (tmp_path / "captions.json").write_text(json.dumps(texts))
    script = Path(__file__).with_name("tokenize_captions.py")
    done = subprocess.run(
        [python, script, tmp_path / "captions.json", tmp_path / "ids.npz"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "ids.npz") as theirs:
        expected, vocabulary = theirs["ids"], str(theirs["vocabulary"])
    ours = ClipTokenizer(77, path=vocabulary)(texts)
    wrong = [text for text, a, b in zip(texts, ours, expected, strict=True) if (a != b).any()]
    assert not wrong, wrong[:5]
