"""Formulas: the papers' predictions about a protocol."""
