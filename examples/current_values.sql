-- The current value of each key, out of a folder of updates: of the rows of a key the one of the newest batch. A sink
-- of files adds a file for each batch, named by its number, and a key has one row in it.
--
-- Run it:  streamtopology run examples/wordcount.yaml
--          python -c "import duckdb; print(duckdb.sql(open('examples/current_values.sql').read()))"
SELECT * EXCLUDE (filename)
FROM read_parquet('build/wordcount/counts/*.parquet', filename = true)
QUALIFY row_number() OVER (PARTITION BY word ORDER BY filename DESC) = 1
ORDER BY count DESC
