"""The file of the tagger "precomputed:FILE": parts of speech and noun phrases of captions.

  vlc-jax tag spacy:en_core_web_sm captions.json tags.jsonl

CAPTIONS is a JSON list, or a folder that `vlc-jax prepare` wrote: all its captions. Exit code 2: a
wrong request; 3: captions that cannot be read or tagged.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from vlc_jax.input_pipeline.commands import addresses, command_line
from vlc_jax.input_pipeline.hard_texts.taggers import make_tagger, write_tags
from vlc_jax.input_pipeline.record import DataError
from vlc_jax.input_pipeline.sources import json_annotations, shards


def _run(words: list[str]) -> int:
    parser = command_line.parser("tag", __doc__)
    parser.add_argument("tagger", metavar="TAGGER", help="KIND:ARGUMENT")
    parser.add_argument("captions", metavar="CAPTIONS", type=Path)
    parser.add_argument("out", metavar="OUT", type=Path)
    options = parser.parse_args(words)
    write_tags(options.out, make_tagger(options.tagger), _captions(options.captions))
    return 0


def _captions(path: Path) -> Iterable[str]:
    if path.is_dir():
        source = shards.ShardsSource(path=path)
        captions = (caption for index in range(len(source)) for caption in source[index].captions)
        return (caption for caption in captions if isinstance(caption, str))
    texts = json_annotations.load(path)
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise DataError(f"{path} holds no JSON list of captions")
    return texts


main = addresses.command(_run)

if __name__ == "__main__":
    sys.exit(main())
