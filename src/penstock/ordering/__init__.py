"""What makes an order stable: the canonical form of keys, and (with ordered parallelism) the reorder buffers."""
