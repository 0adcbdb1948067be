"""Protocol cores: pure functions over NumPy arrays, without clock, randomness or input and output of their own."""
