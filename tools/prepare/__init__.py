"""The parts of tools/prepare_data.py."""
