"""Create the keys of a group: the group's certificate, which signs the members' certificates, and the revocation list.

| file          | holds                                                        | who has it          |
|---------------|--------------------------------------------------------------|---------------------|
| `group.pem`   | the group's certificate                                      | every member        |
| `group.key`   | the group's key: its holder can make members                 | the operator alone  |
| `group.crl`   | the certificates revoked                                     | every member        |
| `NAME.pem`    | a member's certificate and key                               | that member alone   |
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cubecast.errors import LocalProtocolError
from cubecast.live.credentials import URI
from cubecast.member.settings import parse_address

GROUP, KEY, REVOKED = "group.pem", "group.key", "group.crl"


def init(folder: str | Path, *, name: str = "cubecast group", days: int = 3650) -> Path:
    """Make a group's certificate and key in a folder; returns the certificate's path."""
    folder = Path(folder)
    if (folder / KEY).exists():
        raise LocalProtocolError(f"{folder / KEY} already exists; choose another folder or remove it")
    folder.mkdir(parents=True, exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(folder / KEY, _key_bytes(key), secret=True)
    _write(folder / GROUP, certificate.public_bytes(serialization.Encoding.PEM))
    _write_revoked(folder, certificate, key, [])
    return folder / GROUP


def member_file(folder: str | Path, address: str, *, name: str | None = None) -> Path:
    """The file of the certificate and key that `issue` makes with these arguments."""
    parse_address(address)
    name = name or address.replace(":", "_").replace("[", "").replace("]", "")
    path = Path(folder) / f"{name}.pem"
    if path.name in (GROUP, ".pem") or path.parent != Path(folder):
        raise LocalProtocolError(f"name {name!r}: choose a file name other than that of the group's certificate")
    return path


def issue(folder: str | Path, address: str, *, name: str | None = None, days: int = 365, replace: bool = False) -> Path:
    """Make the certificate and key of the member at `address`; returns the path of the file with both.

    A file that exists already is an error, unless `replace`: then its certificate is revoked first. An interruption
    between the two leaves a revoked certificate, never a valid one that cannot be revoked any more.
    """
    folder = Path(folder)
    path = member_file(folder, address, name=name)
    if path.exists() and not replace:
        raise LocalProtocolError(
            f"{path} already exists; give --replace to revoke that certificate and issue a new one"
        )
    group, group_key = _load(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, path.stem)])
    certificate = (
        _builder(subject, group.subject, key.public_key(), days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(URI + address)]),
            critical=False,
        )
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(group_key.public_key()), critical=False)
        .sign(group_key, hashes.SHA256())
    )
    if path.exists():
        revoke(folder, path)
    _write(path, certificate.public_bytes(serialization.Encoding.PEM) + _key_bytes(key), secret=True)
    return path


def revoke(folder: str | Path, member: str | Path) -> Path:
    """Add a member's certificate to the revocation list; returns the list's path."""
    folder = Path(folder)
    group, group_key = _load(folder)
    try:
        certificate = x509.load_pem_x509_certificate(Path(member).read_bytes())
        revoked = list(x509.load_pem_x509_crl((folder / REVOKED).read_bytes()))
    except (OSError, ValueError) as error:
        raise LocalProtocolError(f"cannot revoke {member}: {error}") from error
    if all(entry.serial_number != certificate.serial_number for entry in revoked):
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number).revocation_date(now)
        revoked.append(builder.build())
    _write_revoked(folder, group, group_key, revoked)
    return folder / REVOKED


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: int
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    begin = now - datetime.timedelta(minutes=5)  # clocks of members may differ a little
    end = now + datetime.timedelta(days=days) if days > 0 else now - datetime.timedelta(minutes=1)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(x509.random_serial_number()).not_valid_before(begin).not_valid_after(end)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _load(folder: Path) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    try:
        certificate = x509.load_pem_x509_certificate((folder / GROUP).read_bytes())
        key = serialization.load_pem_private_key((folder / KEY).read_bytes(), None)
    except (OSError, ValueError) as error:
        raise LocalProtocolError(
            f"no group keys in {folder} ({error}); create them with `cubecast keys init --folder {folder}`"
        ) from error
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    return certificate, key


def _write_revoked(
    folder: Path,
    group: x509.Certificate,
    key: ec.EllipticCurvePrivateKey,
    revoked: list[x509.RevokedCertificate],
) -> None:
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateRevocationListBuilder().issuer_name(group.subject).last_update(now)
    builder = builder.next_update(now + datetime.timedelta(days=3650))
    for entry in revoked:
        builder = builder.add_revoked_certificate(entry)
    _write(folder / REVOKED, builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))


def _key_bytes(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes, *, secret: bool = False) -> None:
    """Write beside and rename: a reader never sees half a file, and nobody else sees a secret."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600 if secret else 0o644), "wb") as file:
            file.write(data)
        part.replace(path)
    except OSError as error:
        part.unlink(missing_ok=True)
        raise LocalProtocolError(f"cannot write {path}: {error.strerror}") from error
