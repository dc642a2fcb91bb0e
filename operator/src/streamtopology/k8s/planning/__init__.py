"""Planning: the judge of load reports and the process that runs it."""
