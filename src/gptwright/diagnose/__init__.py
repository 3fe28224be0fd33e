"""What the numbers of a run say: rules over evidence, the forecast, and comparison.

`reading` is a run as rules see it: the evidence, and what arithmetic recovers from it (`settings`, `machine`,
`sizes`, `speed`, `timing`, `batches`). A `rule` is a function from that to findings; `rules/` has them by
family, `engine` puts all of them to a run, and `planned` those that need no log to a plan. What several rules
ask has a file here: the curves (`series`), how sure they are (`evaluation`), whether a loss is one (`scale`),
is `stuck` or has jumped (`resumed`), what public runs and laws say (`reference`, `law`), and where it is
heading (`forecast`). `compare/` sets two runs side by side.
"""
