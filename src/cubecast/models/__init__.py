"""Formulas: what the papers predict about a protocol."""
