"""Clips to frames: one demux pass, a plan, a decoder, and a pool of processes that can be killed."""
