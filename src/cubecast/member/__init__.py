"""One member of a group, without I/O; `cubecast.member.member` lists the modules."""
