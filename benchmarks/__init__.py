"""Figures as ratios: `python -m benchmarks.NAME` prints `name value goal` lines."""
