"""A differential test: random topologies over random streams, compared with SQL over the whole input.

`draw` makes a case from a seed, `play` runs it on the data plane in one process, `oracle` says in SQL what each sink must
hold of each batch, `shrink` makes a failing case smaller, and `record` writes it as files that a person can read.
"""
