"""Adapters: cubecast under the interfaces that web frameworks already have.

| module      | is                                                        | extra       |
|-------------|-----------------------------------------------------------|-------------|
| `channels`  | a channel layer of Django Channels                        | `channels`  |
| `socketio`  | a client manager of python-socketio                       | `socketio`  |
| `starlette` | publish and subscribe for Starlette, FastAPI and others   | `starlette` |
"""
