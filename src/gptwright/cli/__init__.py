"""One thin file a verb: parse, call, render, exit status."""
