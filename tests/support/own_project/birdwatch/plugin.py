"""What the package adds under names without dots, by an entry point of vlc_jax.plugins."""

from birdwatch import objectives, parts

LOSSES = {"margin": objectives.margin}
HEADS = {"Halved": parts.Halved}
SOURCES = {"Birds": parts.Birds}
TOKENIZERS = {"Letters": parts.Letters}
PROTOCOLS = {"bird_choice": parts.CHOICE}
BENCHMARKS = {"PAIRS": (parts.pairs, "bird_choice")}
VARIANTS = {"TINY": parts.TINY}
