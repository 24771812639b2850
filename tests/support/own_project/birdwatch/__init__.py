"""A small project outside of this one: something of each kind that a config names."""
