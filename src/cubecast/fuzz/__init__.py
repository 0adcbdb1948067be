"""Deterministic simulation of whole members: one seed, one history (FoundationDB, TigerBeetle's VOPR, turmoil).

Real `cubecast.member.Member` objects run over simulated sockets, disks and clocks. There is no asyncio, no thread, no
wall clock and one random generator, so a seed replays its history exactly.

| module           | holds                                                                              |
|------------------|------------------------------------------------------------------------------------|
| `agenda`         | the event queue                                                                    |
| `network`        | byte streams with latency, re-chunking, resets, stalls and cuts                    |
| `disk`           | the journal of one machine, synced or torn                                         |
| `process`        | the driver of one member, and its application                                      |
| `world`          | processes, network and disks of one history                                        |
| `changes`        | changes at random times: lifecycle, load, faults                                   |
| `themes`         | which moments and faults a history concentrates on                                 |
| `fault_points`   | faults injected at a step of the protocol                                          |
| `operator`       | operator actions for a group that cannot recover by itself                         |
| `judge`          | the guarantees of a group, checked from the events of a history                    |
| `histories`      | draws a history from a seed, runs it and judges it                                 |
| `impostor`       | a stranger at the address of a machine that is down                                |
"""
