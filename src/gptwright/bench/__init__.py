"""Measuring this machine, and this project beside another trainer in the same run."""
