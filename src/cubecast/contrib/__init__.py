"""Adapters that implement interfaces of web frameworks and libraries with cubecast.

| module      | is                                                        | extra       |
|-------------|-----------------------------------------------------------|-------------|
| `channels`  | a channel layer of Django Channels                        | `channels`  |
| `otel`      | OpenTelemetry: spans of messages across processes         | `otel`      |
| `pycrdt`    | documents of pycrdt (Yjs) that processes edit together    | `crdt`      |
| `socketio`  | a client manager of python-socketio                       | `socketio`  |
| `starlette` | publish and subscribe for Starlette, FastAPI and others   | `starlette` |
"""
