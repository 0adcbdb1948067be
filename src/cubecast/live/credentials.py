"""A member's proof of who it is: its certificate and key, and the certificate of the group that signs them all.

A member's certificate names its address as a URI (`cubecast:host:port`). The other side compares it with the rank that
the member claims, so a member of the group cannot speak for another.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from cubecast.errors import LocalProtocolError, RemoteProtocolError

URI = "cubecast:"


@dataclass(frozen=True, kw_only=True)
class Credentials:
    """TLS 1.3 contexts of both directions; make them with `Credentials.load`."""

    server: ssl.SSLContext
    client: ssl.SSLContext

    @classmethod
    def load(cls, member: str | Path, *, ca: str | Path, key: str | Path | None = None) -> Self:
        """Read a member's certificate (and key, in the same file unless named) and the group's certificate.

        A list of revoked certificates beside the group's certificate (`group.crl` beside `group.pem`) is obeyed.
        """
        contexts = [
            _context(purpose, Path(member), Path(ca), Path(key) if key else None)
            for purpose in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
        ]
        return cls(server=contexts[0], client=contexts[1])


def _context(purpose: Any, member: Path, ca: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # the certificate names the member's address, which is compared with its rank
    context.verify_mode = ssl.CERT_REQUIRED
    for path in (member, ca, *([key] if key else [])):
        if not path.is_file():
            raise LocalProtocolError(f"no file {path}; make it with `cubecast keys init` and `cubecast keys issue`")
    try:
        context.load_cert_chain(member, key)
        context.load_verify_locations(ca)
        revoked = ca.with_suffix(".crl")
        if revoked.is_file():
            context.load_verify_locations(revoked)
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except (ssl.SSLError, OSError) as error:
        raise LocalProtocolError(f"{member} with {ca}: not a certificate with its key ({error})") from error
    return context


def require_protection(credentials: Credentials | None, *, plaintext: bool) -> None:
    """Refuse a member that does not say whether it goes with TLS or without."""
    if (credentials is None) != plaintext:
        raise LocalProtocolError(
            "give credentials=Credentials.load(...), or plaintext=True to go without protection, not both or neither"
        )


def require_address(certificate: dict[str, Any] | None, address: str) -> None:
    """Refuse a peer whose certificate does not name this address."""
    named = [value for kind, value in (certificate or {}).get("subjectAltName", ()) if kind == "URI"]
    if URI + address not in named:
        said = ", ".join(name.removeprefix(URI) for name in named) or "nobody"
        raise RemoteProtocolError(f"its certificate is for {said}, not for {address}")
