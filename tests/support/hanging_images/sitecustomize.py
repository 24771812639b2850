"""A named pipe is read as a picture on storage that does not answer, in every process that has this
folder on PYTHONPATH: the workers of a loader.
"""

from pathlib import Path

from vlc_jax.input_pipeline.images import image_ops

image_ops.read_bytes = Path.read_bytes  # which waits, where the program refuses a pipe
