"""Tables and config of the study of photographs."""

from collections import Counter

import pytest

from studies import photographs

CAPTION = "A white dog and a man are sitting next to the young child ."
COUNTS = Counter({"black": 5, "red": 1, "standing": 2, "lying": 1, "old": 1})


def different(text):
    """Places of the words that are not those of the caption, articles left out."""
    pairs = enumerate(zip(CAPTION.split(), text.split(), strict=True))
    return [place for place, (old, new) in pairs if old != new and old.lower() != "a"]


def test_foil_and_synonyms_stand_in_the_place_of_one_word():
    rows = [{"image": f"{number}.jpg", "caption": CAPTION} for number in range(30)]
    found = {name: [] for name in photographs.TABLES}
    for name, line in photographs.cases(rows, COUNTS):
        assert line["caption"] == CAPTION
        found[name].append(line)
    changed = set()
    for seen, unseen in zip(found["photographs_replace"], found["photographs_unseen"], strict=True):
        assert (seen["image"], seen["negatives"]) == (unseen["image"], unseen["negatives"])
        texts = [*seen["negatives"], *seen["positives"], *unseen["positives"]]
        # "white" becomes "alabaster", and the article before it "an"
        (place,) = {place for text in texts for place in different(text)}
        word = CAPTION.split()[place].lower()
        foil, *synonyms = (text.split()[place] for text in texts)
        assert foil in photographs.FOILS[word]
        assert COUNTS[foil]  # words that training captions have
        assert tuple(synonyms) == photographs.SYNONYMS[word]
        changed.add(word)
    assert changed == {"white", "sitting", "young"}
    assert len(found["photographs_order"]) == 30


def test_texts_at_random_are_as_many_as_the_filter_kept():
    rows = [{"caption": f"{CAPTION} {number}"} for number in range(400)]
    of = {"pairs": 1000, "kept": 300}
    lines = list(photographs.at_random(rows, {"crepe_swap": of, "crepe_replace": of}))
    assert 120 < sum(len(line["negatives"]) for line in lines) < 360
    assert all({*line["negatives"]}.isdisjoint({line["caption"]}) for line in lines)


def test_foils_contradict_their_word_and_are_none_of_its_synonyms():
    for word, synonyms in photographs.SYNONYMS.items():
        assert not photographs.FOILS[word] & {word, *synonyms}


def test_words_of_the_vocabulary_are_pieces_of_captions_and_end_with_the_largest_id():
    made = photographs.vocabulary(["a dog runs", "A dog sits"] * 5)
    assert made.encode("a DOG").ids == made.encode("A dog").ids
    assert made.token_to_id("<eos>") == made.get_vocab_size() - 1


def test_a_missing_folder_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("VLC_PHOTOGRAPHS", str(tmp_path))
    with pytest.raises(ValueError, match="VLC_PHOTOGRAPHS names a folder with flickr8k/captions"):
        photographs.get_config(f"tables={tmp_path}")


def test_methods_continue_with_half_the_rate_and_other_texts(monkeypatch, tmp_path):
    (tmp_path / "flickr8k").mkdir()
    (tmp_path / "flickr8k" / photographs.CAPTIONS).write_text(
        "image,caption,split\na.jpg,a,train\n"
    )
    monkeypatch.setenv("VLC_PHOTOGRAPHS", str(tmp_path))
    first = photographs.get_config("tables=t")
    later = photographs.get_config("tables=t,method=hn,captions=permuted,texts=balanced")
    assert first.optimizer.learning_rate == 2 * later.optimizer.learning_rate
    assert later.input.source_options.path == f"t/{photographs.PERMUTED}"
    assert later.input.negatives.options.from_table.path == "t/balanced.jsonl"
    assert {*first.evals} == {*later.evals} > {*photographs.TABLES}
