"""What happened in a run: the schema of events, files of them, and the checkers that hold a trace to its promises."""
