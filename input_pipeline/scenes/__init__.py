"""The embedded world: seeded scenes, their pictures, and captions whose truth is known exactly.

  stream.py    random numbers that are the same on every machine
  world.py     the parameters of a world (World), an exact description of a picture (Scene)
  sample.py    scene i of a split
  shapes.py    outlines and textures as masks;   draw.py  a scene -> pixels
  words.py     base words, synonyms, vocabulary; grammar.py  captions, their truth, their parse
  contrast.py  hard negatives and hard positives of a caption
  hard_image.py  a picture with two objects or colours exchanged, and its caption
  questions.py  the question that a caption answers; conversations.py  conversations about scenes
Their users: `sources/scene_records.py` (pictures with captions), `hard_texts/scene_texts.py`
(generators by name), `benchmarks/scene_cases.py` (evaluation sets).
"""
