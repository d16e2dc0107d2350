"""Several workers in one operator: which they are, which units they take, and how their output is put in order."""
