"""Groups with views in the packet-level simulator: members join, leave, crash and return while messages flow.

Every view has a stack for each of its members: data protocol, stability protocol and failure detector, compiled, over
arrays sized for that view. Agreement on the next view (`protocols.membership`) is plain Python; its messages are
packets of the simulated network, and the kernel returns to Python when one arrives.

| module             | one idea                                                                              |
|--------------------|---------------------------------------------------------------------------------------|
| `tables`           | incarnations, views and packets as arrays                                             |
| `kernel`           | the event loop: packets, timers, multicasts, until something concerns Python          |
| `transport`        | reliable FIFO links between incarnations: sending, retransmission, order              |
| `stacks`           | the protocols of a view, built and bound                                              |
| `simulated_member` | one incarnation of a process: the host of an `Agreement`                              |
| `group`            | all of them and the clock: passes messages to Python, installs views, finds failures  |
| `pauses`           | how long members were paused                                                          |
| `churn_schedule`   | which processes join, leave, crash and return, and when                               |
| `sizes`            | the size of a membership message in bytes                                             |
| `settings`         | the settings of a scenario for views, validated                                       |
| `simulate`         | a run from its scenario to its result                                                 |
| `metrics`          | the result of a run                                                                   |

**Departures from a live group.** A process has no journal: after a crash it returns as a new incarnation. The transport
knows at once which packets were lost and sends them again after `repeat_ms`; acknowledgements are not simulated. A
newcomer gets the state of the application with the decision that lets it join.
"""
