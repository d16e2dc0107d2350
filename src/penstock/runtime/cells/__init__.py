"""One operator (or a fused chain) at run time: whose turn it is, what goes out, what a chunk costs, what it does."""
