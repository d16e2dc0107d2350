"""What a run is made of: one owner for each of its jobs, none of which knows the run."""
