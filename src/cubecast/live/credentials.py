"""The credentials of a member: its certificate and key, and the certificate of the group that signs them all.

A member's certificate names its address as a URI (`cubecast:host:port`). The other side compares it with the address
that the member claims, so a member of the group cannot impersonate another.

| field             | meaning                                                                          |
|-------------------|----------------------------------------------------------------------------------|
| `server`,`client` | TLS 1.3 contexts; `refresh` replaces them, so read them for every new connection |
| `member`, `key`   | files of this member's certificate and of its key (None: the same file)          |
| `ca`, `crl`       | files of the group's certificate and, next to it, of the revocation list         |

Python's ssl module can neither read a certificate before a handshake nor list a CRL, so both are read with
`cryptography`. It takes 11 MB of memory: a plaintext member never imports it.
"""

from __future__ import annotations

import datetime
import logging
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

URI = "cubecast:"

logger = logging.getLogger("cubecast.live")

FileSignature = tuple[tuple[int, int, int, int] | None, ...]


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """The contents of the files at one moment."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    own: Certificate
    is_signed_by_ca: bool
    revoked: frozenset[int] | None
    """Serial numbers, None where there is no CRL."""


class Credentials:
    """TLS contexts of both directions; create them with `Credentials.load`."""

    def __init__(self, member: Path, *, ca: Path, key: Path | None) -> None:
        """Read the files."""
        self.member = member
        self.ca = ca
        self.key = key
        self.crl = ca.with_suffix(".crl")
        self._signature = self._read_signature()
        self._loaded = self._read()

    @classmethod
    def load(cls, member: str | Path, *, ca: str | Path, key: str | Path | None = None) -> Self:
        """Load a member's certificate (with its key, in the same file unless given) and the group's certificate.

        A revocation list next to the group's certificate (`group.crl` next to `group.pem`) is used too.
        """
        return cls(Path(member), ca=Path(ca), key=Path(key) if key else None)

    @property
    def server(self) -> ssl.SSLContext:
        """The context for connections that this member accepts."""
        return self._loaded.server

    @property
    def client(self) -> ssl.SSLContext:
        """The context for connections that this member dials."""
        return self._loaded.client

    def refresh(self) -> bool:
        """Reload the files if one of them changed; return True if there are new contexts.

        Unusable files are logged once, and the contexts stay as they are. Unusable are also a CRL that vanished, and a
        certificate that does not match the group's certificate until both are replaced.
        """
        signature = self._read_signature()
        if signature == self._signature:
            return False
        self._signature = signature
        try:
            loaded = self._read()
            self._require_fit(loaded)
        except LocalProtocolError as error:
            logger.warning("credentials not refreshed, the previous ones stay in use error=%s", error)
            return False
        self._loaded = loaded
        if self._is_own_revoked:
            logger.warning(
                "own certificate revoked file=%s serial=%x fix=%s",
                self.member,
                loaded.own.serial_number,
                "issue a new one with `cubecast keys issue HOST:PORT --replace`",
            )
        return True

    @property
    def _is_own_revoked(self) -> bool:
        return self._loaded.own.serial_number in (self._loaded.revoked or ())

    def is_revoked(self, certificate: bytes | Mapping[str, Any] | None) -> bool:
        """Is this certificate (DER, or the dict of `getpeercert`) on the CRL? False for None (plaintext)."""
        if not certificate or not self._loaded.revoked:
            return False
        if isinstance(certificate, bytes):
            from cryptography import x509

            return x509.load_der_x509_certificate(certificate).serial_number in self._loaded.revoked
        return int(certificate["serialNumber"], 16) in self._loaded.revoked

    def require_own(self, address: str, now: float | None = None) -> None:
        """Refuse to start with a certificate that every peer would reject; `now` is in seconds since 1970."""
        own = self._loaded.own
        moment = datetime.datetime.fromtimestamp(time.time() if now is None else now, datetime.UTC)
        named = _named_by(own)
        again = f"`cubecast keys issue {address} --replace`"
        if URI + address not in named:
            said = ", ".join(name.removeprefix(URI) for name in named) or "nobody"
            raise LocalProtocolError(
                f"{self.member}: its certificate is for {said}, not for {address}; "
                f"use the file of `cubecast keys issue {address}`"
            )
        if moment > own.not_valid_after_utc:
            raise LocalProtocolError(
                f"{self.member}: its certificate expired at {own.not_valid_after_utc}; issue a new one with {again}"
            )
        if moment < own.not_valid_before_utc:
            raise LocalProtocolError(
                f"{self.member}: its certificate is not valid before {own.not_valid_before_utc}, and this machine's "
                f"clock shows {moment:%Y-%m-%d %H:%M:%S%z}; set the clock, or issue a new one with {again}"
            )
        if self._is_own_revoked:
            raise LocalProtocolError(
                f"{self.member}: {self.crl} revokes its certificate (serial {own.serial_number:x}); "
                f"issue a new one with {again}"
            )
        self._require_signed(self._loaded)

    def _require_fit(self, loaded: _Loaded) -> None:
        """New files must not lock this member out, nor drop revocations."""
        if loaded.revoked is None and self._loaded.revoked is not None:
            raise LocalProtocolError(f"the file {self.crl} is gone; copy the group's current one to this path")
        self._require_signed(loaded)

    def _require_signed(self, loaded: _Loaded) -> None:
        if not loaded.is_signed_by_ca:
            raise LocalProtocolError(
                f"{self.member}: its certificate is not signed by {self.ca}; use files of the same `cubecast keys init`"
            )

    def _read_signature(self) -> FileSignature:
        return tuple(_file_signature(path) for path in (self.member, self.key, self.ca, self.crl) if path is not None)

    def _read(self) -> _Loaded:
        server, client = (
            _context(purpose, self.member, self.ca, self.key)
            for purpose in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT)
        )
        chain, authorities = _read_certificates(self.member), _read_certificates(self.ca)
        return _Loaded(
            server=server,
            client=client,
            own=chain[0],
            is_signed_by_ca=any(_is_signed(one, authority) for one in chain for authority in authorities),
            revoked=_read_revoked(self.crl, authorities),
        )


def _context(purpose: Any, member: Path, ca: Path, key: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(purpose)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # member.links compares the address that the certificate names
    context.verify_mode = ssl.CERT_REQUIRED
    for path in (member, ca, *([key] if key else [])):
        if not path.is_file():
            raise LocalProtocolError(f"no file {path}; create it with `cubecast keys init` and `cubecast keys issue`")
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


def _file_signature(path: Path) -> tuple[int, int, int, int] | None:
    """Changes whenever the file is written, replaced or given other permissions; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _read_certificates(path: Path) -> list[Certificate]:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError) as error:
        raise LocalProtocolError(f"{path}: not a certificate ({error})") from error


def _read_revoked(path: Path, authorities: list[Certificate]) -> frozenset[int] | None:
    """Serial numbers of the revoked certificates. A CRL that no authority signed would make TLS refuse every peer."""
    from cryptography import x509

    if not path.is_file():
        return None
    try:
        blocks = re.findall(rb"-----BEGIN X509 CRL-----.*?-----END X509 CRL-----", path.read_bytes(), re.DOTALL)
        lists = [x509.load_pem_x509_crl(block) for block in blocks]
    except (OSError, ValueError) as error:
        raise LocalProtocolError(f"{path}: not a revocation list ({error})") from error
    if not lists:
        raise LocalProtocolError(f"{path}: not a revocation list; copy the group's current one to this path")
    for one in lists:
        if not any(one.is_signature_valid(authority.public_key()) for authority in authorities):  # type: ignore[arg-type]
            raise LocalProtocolError(f"{path}: another group signed it; copy the group.crl that belongs to group.pem")
    return frozenset(entry.serial_number for one in lists for entry in one)


def _is_signed(certificate: Certificate, authority: Certificate) -> bool:
    from cryptography.exceptions import InvalidSignature

    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


def _named_by(certificate: Certificate) -> list[str]:
    """The URIs that a certificate names."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def require_protection(credentials: Credentials | None, *, plaintext: bool) -> None:
    """Require either credentials or plaintext."""
    if credentials is not None and not isinstance(credentials, Credentials):
        raise LocalProtocolError(f"credentials={credentials!r}: give Credentials.load(MEMBER_PEM, ca=GROUP_PEM)")
    if (credentials is None) != plaintext:
        raise LocalProtocolError("give either credentials=Credentials.load(...), or plaintext=True for no protection")


# Numbers of OpenSSL, x509_vfy.h.
_VERIFY_CODES = {
    3: "no CRL of the peer's group is loaded: copy the group.crl that belongs to group.pem",
    7: "the peer's certificate is not of this group: another group.key signed it",
    9: "the peer's certificate is not valid yet: compare the clocks of both machines",
    10: "the peer's certificate has expired: issue a new one with `cubecast keys issue --replace`",
    12: "this member's group.crl has expired: copy the group's current one",
    18: "the peer's certificate is self-signed, not signed by this group's key",
    19: "the peer's certificate is not of this group: its group.pem is another one",
    20: "the peer's certificate is not of this group: another group.key signed it",
    21: "the peer's certificate is not of this group: another group.key signed it",
    23: "the peer's certificate is revoked",
}

# OpenSSL's name of the error; an ALERT is the peer's message about this side.
_TLS_REASONS = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the peer sent no certificate",
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": "the peer refused: this side sent no certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the peer refused: this member's certificate has expired or is not valid yet",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": "the peer refused: this member's certificate is revoked",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the peer refused this member's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the peer refused this member's certificate",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": "the peer refused: this member's certificate is not for this use",
    "TLSV1_ALERT_UNKNOWN_CA": "the peer refused: this member's certificate is not of its group",
    "TLSV1_ALERT_DECRYPT_ERROR": "the peer refused: this member's certificate is not of its group",
    "TLSV1_ALERT_PROTOCOL_VERSION": "the peer refused: no common version of TLS",
    "UNSUPPORTED_PROTOCOL": "the peer does not speak TLS 1.3",
    "WRONG_VERSION_NUMBER": "the peer does not speak TLS; was it started with --plaintext?",
    "HTTP_REQUEST": "the peer speaks HTTP, not TLS",
    "UNEXPECTED_EOF_WHILE_READING": "the peer closed the connection without the end of TLS",
}


def explain_tls_error(error: BaseException) -> str:
    """Why a connection was not made or was lost, in one line without OpenSSL's file and line numbers."""
    cause = _find_tls_error(error)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _VERIFY_CODES.get(cause.verify_code, f"the peer's certificate does not verify: {cause.verify_message}")
    if isinstance(cause, ssl.SSLError):
        reason = cause.reason or ""
        return _TLS_REASONS.get(reason, f"TLS failed: {reason.replace('_', ' ').lower() or cause.strerror or cause}")
    if isinstance(error, ConnectionRefusedError):
        return "no process listens there"
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "the peer closed the connection"
    if isinstance(error, TimeoutError):
        return "the peer did not answer in time"
    return " ".join(str(error).split()) or type(error).__name__


def _find_tls_error(error: BaseException) -> BaseException | None:
    """The error itself, or the TLS error that it was raised from."""
    chain: BaseException | None = error
    while chain is not None and not isinstance(chain, ssl.SSLError):
        chain = chain.__cause__ or chain.__context__
    return chain
