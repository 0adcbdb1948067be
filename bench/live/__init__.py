"""Benchmarks of the live runtime, side by side with its peers."""
