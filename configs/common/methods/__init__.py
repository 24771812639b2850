"""All methods: name -> record. Data only.

`vlc-jax --list NAME` prints the published numbers that a config reproduces, and
`python -m studies.method_tables` writes the tables of README.md and docs from here. A new method is
a config, its loss or head with a test, and a record in one of these files.
"""

from vlc_jax.configs.common.methods import generative, heads, losses
from vlc_jax.configs.common.methods.record import Method, Row

METHODS: dict[str, Method] = losses.METHODS | heads.METHODS | generative.METHODS
ROWS: tuple[Row, ...] = tuple(row for method in METHODS.values() for row in method.rows)
