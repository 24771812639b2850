"""The embedded world: seeded scenes, their pictures, and captions whose truth is known exactly.

  stream.py    random numbers that are the same everywhere
  world.py     what may be in a picture (World), one exact description of a picture (Scene)
  sample.py    scene i of a split
  shapes.py    outlines and textures as masks;   draw.py  a scene -> pixels
  words.py     base words, synonyms, vocabulary; grammar.py  captions, their truth, their parse
  contrast.py  hard negatives and hard positives of a caption; generators.py  the same by name
  hard_image.py  a picture with two objects or colours exchanged, and its caption
The pictures with captions are `sources/scenes.py`; the questions about them `benchmarks/scenes.py`.
"""
