"""Python runs this when a process of Spark's starts, before it imports PySpark (`spark_conf` puts the folder into the path).

Spark puts a zip of PySpark first into the path, and Python compiles a zip's modules at every start.
"""

import sys

sys.path.sort(key=lambda entry: entry.endswith("pyspark.zip"))
