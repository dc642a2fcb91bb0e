"""The values that describe a batch to its tasks: DAG, plan, attempt, and the results that come back."""
