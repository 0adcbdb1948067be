"""Groups that change, between real processes: the core of `core.membership` over TCP and TLS.

| module     | one idea                                                                             |
|------------|--------------------------------------------------------------------------------------|
| `settings` | how a member runs                                                                    |
| `peer`     | what waits for one other process                                                     |
| `links`    | connections to whoever the core speaks to; greetings and refusals                    |
| `events`   | what the application is given, and the budget of what it has not taken               |
| `window`   | the own messages that are not stable: a budget of bytes, and who waits for what      |
| `keeping`  | the history that a newcomer gets when the application makes no snapshots             |
| `journal`  | the log on disk, from which a member goes on after a stop                            |
| `recording`| what a member did, for the checkers                                                  |
| `outbox`   | nothing leaves before what it tells of is written down                               |
| `told`     | what the core tells the application                                                  |
| `driver`   | messages and timers into the core, its actions out                                   |
| `looking`  | what can be seen of a member                                                         |
| `node`     | a member in a terminal                                                               |
| `group`    | the programming interface                                                            |
"""
