"""A minimal subset of HTTP/1.1: one GET or HEAD per connection, which is closed after the response."""

from __future__ import annotations

OK = "200 OK"
NOT_FOUND = "404 Not Found"
UNAVAILABLE = "503 Service Unavailable"
TEXT, JSON, HTML = "text/plain; charset=utf-8", "application/json", "text/html; charset=utf-8"
REQUEST_BYTES_MAX = 8192
END_OF_HEAD = b"\r\n\r\n"


def encode_request(path: str, host: str) -> bytes:
    """A request as a member sends it."""
    return f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode()


def path_of(request: bytes) -> str:
    """The path that a request asks for, without a query; "" if it is neither a GET nor a HEAD."""
    words = request.split(b"\r\n", 1)[0].split(b" ")
    is_read = len(words) == 3 and words[0] in (b"GET", b"HEAD")
    return words[1].decode("latin-1").split("?")[0] if is_read else ""


def is_head(request: bytes) -> bool:
    """Does the request ask for the head of the answer only, as some probes do?"""
    return request.startswith(b"HEAD ")


def encode_answer(status: str, kind: str, body: bytes, *, has_body: bool = True) -> bytes:
    """An answer that is not cached, and whose content type browsers do not guess."""
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (body if has_body else b"")


def body_of(answer: bytes) -> bytes | None:
    """The body of a complete answer with status 200; None for any other."""
    head, _, body = answer.partition(END_OF_HEAD)
    return body if head.startswith(b"HTTP/1.1 200 ") else None
