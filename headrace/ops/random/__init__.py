"""Random numbers: seeded, stateless and by generators; drawing candidates."""
