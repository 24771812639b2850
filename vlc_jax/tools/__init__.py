"""Command lines beside the main one: python -m vlc_jax.tools.NAME --help."""
