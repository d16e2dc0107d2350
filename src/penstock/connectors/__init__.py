"""Where data enters and leaves: sources and sinks, written once for every engine."""
