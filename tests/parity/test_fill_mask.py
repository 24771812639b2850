"""Negatives by a masked language model: what the model proposes is what comes in."""

import json

import pytest

from vlc_jax.input_pipeline.hard_texts import edit, word_tables

pytestmark = pytest.mark.slow

RAW, BARE = "A dog, sits on the red mat.", "A dog sits on the red mat"
PARTS = {
    RAW: "DET NOUN PUNCT VERB ADP DET ADJ NOUN PUNCT",
    BARE: "DET NOUN VERB ADP DET ADJ NOUN",
    "... !": "PUNCT PUNCT",
    "the the": "DET DET",
}


@pytest.fixture(scope="module")
def made(there, tmp_path_factory):
    """What tests/parity/fill_mask.py found."""
    folder = tmp_path_factory.mktemp("fill_mask")
    lines = [{"tagger": "by hand", "version": "1"}]
    for caption, parts in PARTS.items():
        tokens, stop = [], 0
        for text, pos in zip(edit.treebank(caption), parts.split(), strict=True):
            start = caption.index(text, stop)
            stop = start + len(text)
            tokens.append({"text": text, "tag": "?", "pos": pos, "start": start, "stop": stop})
        lines.append({"caption": caption, "tokens": tokens, "noun_chunks": []})
    tags, captions = folder / "tags.jsonl", folder / "captions.json"
    tags.write_text("".join(json.dumps(line) + "\n" for line in lines))
    texts = [RAW, "... !", "the the"]
    captions.write_text(json.dumps({"authors": texts, "clean": texts}))
    there("fill_mask.py", captions, tags, folder)
    return json.loads((folder / "texts.json").read_text())


def test_authors_texts_are_among_the_five_likeliest_words(made):
    said = BARE.split()
    # "dog," and "mat." are no words between spaces of the caption: never replaced
    may_change = {2: "sits", 3: "on", 5: "red"}
    possible = {
        " ".join([*said[:place], fill, *said[place + 1 :]])
        for place, word in may_change.items()
        for fill in made["top"][BARE][place]
        if fill != word
    }
    written = {text for texts in made["found"][f"authors: {RAW}"]["made"] for text in texts}
    assert len(written) > 8
    # The pipeline drops special tokens from what it writes.
    special = ("[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]")
    assert written == {
        " ".join([word for word in text.split() if word not in special]) for text in possible
    }


def test_clean_texts_change_one_word_and_keep_the_rest(made):
    top = made["top"]["A dog , sits on the red mat ."]
    spans = edit.spans(RAW)
    places = {0: None, 1: 1, 2: 3, 3: 4, 4: None, 5: 6, 6: 7}  # word -> token; determiners stay
    possible = set()
    for word, token in places.items():
        start, stop = spans[word]
        for fill in top[token] if token is not None else ():
            old = RAW[start:stop]
            if fill.isalpha() and not word_tables.same_meaning(fill.lower(), old):
                possible.add(edit.repaired(RAW, [(start, stop, fill)]))
    written = {text for texts in made["found"][f"clean: {RAW}"]["made"] for text in texts}
    assert written == possible
    assert len(written) > 8


def test_texts_survive_a_journey_and_are_as_many_as_asked(made):
    for found in made["found"].values():
        assert found["again"] == found["made"][7]
        assert all(len(texts) == len(set(texts)) <= 2 for texts in found["made"])


@pytest.mark.parametrize("mode", ["authors", "clean"])
@pytest.mark.parametrize("caption", ["... !", "the the"])
def test_caption_without_a_word_to_replace_has_no_text(made, mode, caption):
    assert not any(made["found"][f"{mode}: {caption}"]["made"])
