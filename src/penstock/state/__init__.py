"""What a flow remembers between batches: states in buckets, and the log that says which of them count."""
