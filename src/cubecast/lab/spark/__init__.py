"""The only door to Spark: nothing outside this folder imports it."""
