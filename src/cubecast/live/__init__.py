"""Live members in real processes: transport, timers, buffers and the group API; no protocols."""
