"""WHAT CAME OUT: rows joined with clips, Parquet tables, snapshots."""
