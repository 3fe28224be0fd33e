"""Damaged and hostile files for every reader that is not one of logs (those are in tests/record/readers)."""
