"""A PySpark script as it is: its session is that of our cluster, and its stateful queries are topologies."""
