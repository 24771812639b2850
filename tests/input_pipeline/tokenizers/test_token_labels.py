from vlc_jax.input_pipeline.tokenizers import byte_level, clip_bpe, functional_words, word_level
from vlc_jax.input_pipeline.tokenizers.token_labels import labels

WORDS = ("red", "cat", "left")


def test_a_token_is_labelled_by_its_word():
    tokenizer = word_level.WordTokenizer(4, WORDS)
    found = labels(tokenizer, ["Red cat", "", "cat cat cat cat cat", "red dog"])
    assert found[0] == ["red", "cat", "(end)"]
    assert found[1] == ["(end)"]
    assert found[2] == ["cat", "cat", "cat", "(end)"]
    assert found[3] == ["red", "(unknown)", "(end)"]


def test_marks_change_no_label():
    plain = word_level.WordTokenizer(4, WORDS)
    tokenizer = functional_words.FunctionalWordTokenizer(plain, ["left"])
    assert labels(tokenizer, ["left cat"]) == [["left", "cat", "(end)"]]


def test_pieces_are_shown_without_the_signs_of_a_vocabulary(clip_vocabulary):
    tokenizer = clip_bpe.ClipTokenizer(8, **clip_vocabulary)
    assert labels(tokenizer, ["red cats"]) == [["(start)", "red", "ca", "t", "s", "(end)"]]


def test_bytes_are_shown_by_their_letters():
    found = labels(byte_level.BytesTokenizer(8), ["a b"])
    assert found == [["a", "Ġ", "b", "(end)"]]
