"""Tools that people and CI run: `scripts/NAME`."""
