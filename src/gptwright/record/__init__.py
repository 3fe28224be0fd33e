"""A run's record, ours or another trainer's: folder, metrics, logs, and the evidence read from them.

Ours is written by `run`, `metrics` and `log_text` and read while it grows by `follow` and `progress`.
Anybody's is opened by `open_run`, which puts together what `readers/` get out of a log, `configs` out of a
config, and what is `stated` beside them, as `evidence`.
"""
