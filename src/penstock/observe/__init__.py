"""What can be seen of a run: reports, metrics, progress. This room reads and never steers."""
