"""Token ids are those of the reference tokenizer, on captions of every kind."""

import hashlib
import io
import json
import random
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sentencepiece
import tokenizers

from tests.support import helpers
from vlc_jax.configs import default
from vlc_jax.configs.common import pretrained
from vlc_jax.input_pipeline.tokenizers import clean, make_tokenizer
from vlc_jax.input_pipeline.tokenizers.byte_level import BytesTokenizer
from vlc_jax.input_pipeline.tokenizers.clip_bpe import ClipTokenizer
from vlc_jax.input_pipeline.tokenizers.pretrained_folder import vocabulary as folder_vocabulary
from vlc_jax.input_pipeline.tokenizers.siglip import siglip_tokenizer
from vlc_jax.input_pipeline.tokenizers.word_level import WordTokenizer, count_words

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


def reference_ids(there, out, texts, *arguments):
    """What tokenize_captions.py writes, `arguments` being CLASS LENGTH FOLDER."""
    out.mkdir(exist_ok=True)
    (out / "captions.json").write_text(json.dumps(texts))
    there("tokenize_captions.py", out / "captions.json", out, *arguments)
    with np.load(out / "ids.npz") as theirs:
        return dict(theirs)


def differing(texts, ours, theirs):
    return [text for text, a, b in zip(texts, ours, theirs, strict=True) if (a != b).any()]


def write_files(tokenizer, folder):
    folder.mkdir()
    for name, content in tokenizer.files().items():
        (folder / name).write_text(content, "utf-8")


def ended(ids, eos):
    """transformers pads CLIP's texts with the end token: no text tower reads what follows it."""
    return np.where(np.cumsum(ids == eos, axis=1) > 0, eos, ids)


def test_clip_ids_are_those_of_open_clip_from_every_form(there, tmp_path):
    """.gz as open_clip has it; vocab.json and merges.txt; tokenizer.json as transformers saves."""
    texts = captions()
    theirs = reference_ids(there, tmp_path / "gz", texts)
    vocabulary = str(theirs["vocabulary"])
    digest = hashlib.sha256(Path(vocabulary).read_bytes()).hexdigest()
    assert digest == "924691ac288e54409236115652ad4aa250f48203de50a9e4722a6ecd48d6804a"
    tokenizer = ClipTokenizer(77, vocabulary)
    write_files(tokenizer, tmp_path / "files")
    reference_ids(there, tmp_path / "json", ["a"], "CLIPTokenizer", "77", tmp_path / "files")
    assert (tmp_path / "json/saved/tokenizer.json").exists()
    for path in (vocabulary, tmp_path / "files", tmp_path / "json/saved"):
        assert not differing(texts, ClipTokenizer(77, path)(texts), theirs["ids"])


def test_clip_ids_are_those_of_transformers(there, tmp_path):
    """It brings text to NFC and lower case, but mends no broken Unicode and no HTML entities."""
    texts = captions()
    vocabulary = str(reference_ids(there, tmp_path / "gz", [])["vocabulary"])
    tokenizer = ClipTokenizer(77, vocabulary)
    write_files(tokenizer, tmp_path / "files")
    arguments = ("CLIPTokenizer", "77", tmp_path / "files")
    theirs = reference_ids(there, tmp_path / "hf", texts, *arguments)["ids"]
    plain = [
        clean.clip(text) == " ".join(unicodedata.normalize("NFC", text).lower().split())
        for text in texts
    ]
    assert sum(plain) > 300
    ours = ended(tokenizer(texts), tokenizer.eos_id)
    wrong = differing(texts, ours, theirs)
    assert wrong
    assert not [text for text, same in zip(texts, plain, strict=True) if same and text in wrong]


def lines_to_train_on():
    page = (helpers.ROOT / "docs/data.md").read_text("utf-8")
    return [line.replace("\n", " ") for line in (*page.splitlines(), *captions()[:600]) if line]


def train(path, **options):
    """A SentencePiece model trained on local text."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines_to_train_on()),
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        pad_id=0,
        eos_id=1,
        **options,
    )
    path.parent.mkdir()
    path.write_bytes(model.getvalue())
    return path.parent


def test_siglip_ids_are_those_of_transformers(there, tmp_path):
    """But for underscores: a space in big_vision, nothing in transformers. Where two cuts of a
    text score the same, transformers' detour over a prefix may round to the other one."""
    folder = train(tmp_path / "siglip/spiece.model", vocab_size=800, unk_id=2, bos_id=-1)
    texts = [text for text in captions() if "_" not in text]
    theirs = reference_ids(there, tmp_path / "out", texts, "SiglipTokenizer", "64", folder)["ids"]
    ours = siglip_tokenizer(64, folder)(texts)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "spiece.model"))
    wrong = [(a, b) for a, b in zip(ours, theirs, strict=True) if (a != b).any()]
    assert len(wrong) < 0.005 * len(texts)
    for row in wrong:
        score = [sum(processor.get_score([int(x) for x in ids])) for ids in row]
        assert score[0] == pytest.approx(score[1], abs=1e-3)
        assert len(set(map(processor.decode, ([int(x) for x in ids] for ids in row)))) == 1


def test_siglip2_ids_are_those_of_transformers(there, tmp_path):
    """Gemma's kind of vocabulary: BPE with bytes for what it lacks, no space put in front."""
    folder = train(
        tmp_path / "siglip2/tokenizer.model",
        vocab_size=1500,
        model_type="bpe",
        byte_fallback=True,
        split_digits=True,
        bos_id=2,
        unk_id=3,
        user_defined_symbols=["<mask>"],
        pad_piece="<pad>",
        eos_piece="<eos>",
        bos_piece="<bos>",
        add_dummy_prefix=False,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
    )
    settings = {"add_bos_token": False, "add_eos_token": True, "padding_side": "right"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    texts, gemma = captions(), {"eos_token": "<eos>", "pad_token": "<pad>", "clean": "lower"}
    arguments = ("Siglip2Tokenizer", "64", folder)
    theirs = reference_ids(there, tmp_path / "out", texts, *arguments)["ids"]
    assert (tmp_path / "out/saved/tokenizer.json").exists()
    for path in (folder, tmp_path / "out/saved"):
        tokenizer = siglip_tokenizer(64, path, **gemma)
        assert not differing(texts, tokenizer(texts), theirs)
    assert folder_vocabulary(folder) == folder_vocabulary(tmp_path / "out/saved")
    kept = siglip_tokenizer(64, folder, **{**gemma, "clean": "none"})
    assert differing(texts, kept(texts), theirs)  # the rule of case matters

    arguments = ("HFTokenizer:canonicalize", "64", tmp_path / "out/saved")
    theirs = reference_ids(there, tmp_path / "open_clip", texts, *arguments)["ids"]
    repaired = siglip_tokenizer(64, folder, **{**gemma, "clean": "clip_canonicalize"})
    assert not differing(texts, repaired(texts), theirs)


def roberta_files(folder):
    """Files of a byte-level BPE, as roberta-base has them."""
    folder.mkdir()
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    bpe = tokenizers.ByteLevelBPETokenizer()
    bpe.train_from_iterator(lines_to_train_on(), 600, special_tokens=special, show_progress=False)
    bpe.save_model(str(folder))
    return folder


@pytest.mark.parametrize("kind", ["Roberta", "XLMRoberta"])
def test_ids_of_roberta_are_those_of_open_clip(there, tmp_path, kind):
    if kind == "Roberta":
        folder = roberta_files(tmp_path / "roberta")
    else:  # its ids are SentencePiece's, moved by one
        path = tmp_path / "xlm/sentencepiece.bpe.model"
        folder = train(path, vocab_size=800, unk_id=2, bos_id=3, control_symbols=[])
    settings = {"tokenizer_class": f"{kind}Tokenizer"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    # one letter many times: two cuts of SentencePiece may score the same, and rounding decides
    texts = [text for text in captions()[:500] if len(text) < 2 or len(set(text)) > 1]
    arguments = ("HFTokenizer:whitespace", "77", folder)
    theirs = reference_ids(there, tmp_path / "out", texts, *arguments)["ids"]
    config = default.get_config()
    with config.unlocked():
        args = SimpleNamespace(
            weights=str(tmp_path / "out/saved"), tokenizer="", path="", image_folder="", variant="x"
        )
        pretrained.use_clip_hf(config, args)
    options = config.text.tokenizer_options.to_dict()
    ours = make_tokenizer(config.text.tokenizer, 77, **options)(texts)
    assert not differing(texts, ours, theirs)
    plain = make_tokenizer("hf", 77, **{**options, "clean": "none"})(texts)
    assert differing(texts, plain, theirs)  # the repair matters


@pytest.mark.parametrize(
    "tokenizer",
    [BytesTokenizer(30), WordTokenizer(30, sorted(count_words(filter(str.isascii, captions()))))],
    ids=["bytes", "words"],
)
def test_ids_are_those_of_the_exported_tokenizer(there, tmp_path, tokenizer):
    for name, content in tokenizer.files().items():
        (tmp_path / name).write_text(content, "utf-8")
    texts = captions()
    found = reference_ids(there, tmp_path / "out", texts, "AutoTokenizer", "30", tmp_path)["ids"]
    assert differing(texts, tokenizer(texts), found) == []
