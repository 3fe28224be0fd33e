"""Readers of every trainer's log, one file a trainer; `read_log` finds out whose it is."""

from gptwright.record.readers.read import read_log

__all__ = ["read_log"]
