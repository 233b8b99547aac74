"""The parts of tools/track_run.py."""
