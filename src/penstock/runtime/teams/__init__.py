"""Several workers in one operator: who they are, which units they take, and how what comes of them is put in order."""
