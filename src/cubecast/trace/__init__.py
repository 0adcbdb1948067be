"""The trace of a run: the schema of events, trace files, and the checkers that compare a trace with its promises."""
