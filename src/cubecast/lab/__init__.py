"""Studies: from a plan to runs, tables, figures and a report (docs/plans.md)."""
