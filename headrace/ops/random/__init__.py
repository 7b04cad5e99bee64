"""Random numbers: seeded, stateless and from generators; candidate sampling."""
