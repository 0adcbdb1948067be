"""Bytes to records and back: frames, batches of data messages, control messages, and the handshake of two members."""
