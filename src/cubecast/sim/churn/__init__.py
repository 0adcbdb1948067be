"""Groups that change, simulated: random histories of a small group, and checkers of every promise it makes."""
