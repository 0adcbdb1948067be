"""One member of a group, without I/O; `cubecast.member.member` has the map of the modules."""
