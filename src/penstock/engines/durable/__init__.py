"""What survives a process: whose a checkpoint is, and how output becomes visible once."""
