"""The nouns that all rooms share, frozen. Pure: no I/O, no clock, no log."""
