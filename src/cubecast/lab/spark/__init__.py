"""The only package that imports Spark."""
