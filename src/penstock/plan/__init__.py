"""From a graph to stages: pure, so that a plan can be shown, tested and compared without running anything."""
