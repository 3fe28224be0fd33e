"""Readers of every trainer's log; `read_log` finds out whose it is.

A trainer's file, as `nanogpt` or `llmc`, is data: the shapes of its lines and what its numbers mean
(`reader`). The way of a log is the same for all. `lines` makes clean text of bytes (`decimal_commas`,
`words`), `read` finds its reader, and `passage` takes the lines: `shapes` and `headers` are templates of
them, of the numbers in `fields`, and `runs` reads thousands of one form at once; `events` is what else a line
can tell. All of it goes into `build`, of which `tables` makes the tables of the evidence (`steps` where a
line prints none).

A loop that nobody published is read by `plain`, from words and numbers in any order: `printed_fields`,
`printed_table`, `printed_header`, `nested`, `history`, `prose`. `ours` is this project's own record, of which
`metrics_block` reads a million lines in a second and `growing` what is new.
"""

from gptwright.record.readers.read import read_log

__all__ = ["read_log"]
