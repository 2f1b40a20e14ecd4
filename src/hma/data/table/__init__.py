"""Tables: CSV, Parquet and arrays of numbers."""
