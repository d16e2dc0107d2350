"""What driver loops meet while they run: ports, contexts, the loops' lives; and the only threads there are."""
