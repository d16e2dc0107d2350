"""The experiments of the five papers, a small module for each figure, in a folder for each paper."""
