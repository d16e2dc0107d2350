"""The parts of `penstock bench elastic`, one file each."""
