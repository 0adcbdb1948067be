"""Members between real processes: transport, timers, buffers and the programming interface; no protocol."""
