"""Files in and out: CSV, JSON lines, Parquet and text; one file is one partition, in the order of names."""
