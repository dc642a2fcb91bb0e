"""The certificates of one test cluster: a CA of its own, whatever it signs, and kubeconfigs."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Iterable
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = datetime.timedelta(days=7)


class Pki:
    """Writes `ca.crt`, `sa.key`, `sa.pub` into `folder` at once, and NAME.crt, NAME.key for each `certificate` asked for."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.ca = folder / "ca.crt"
        self.service_account_key, self.service_account_public_key = folder / "sa.key", folder / "sa.pub"
        self._ca_key = ec.generate_private_key(ec.SECP256R1())
        self._ca_name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "streamtopology-tests")])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        ca = self._unsigned(self._ca_name, self._ca_key.public_key()).add_extension(constraints, critical=True)
        self.ca.write_bytes(ca.sign(self._ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        signing = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        _write_key(self.service_account_key, signing)
        self.service_account_public_key.write_bytes(
            signing.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        )

    def certificate(self, name: str, user: str, group: str = "", hosts: Iterable[str] = ()) -> tuple[Path, Path]:
        """Certificate and key of `user` in `group` (Kubernetes' names), good for serving `hosts` (names or addresses) too."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [x509.NameAttribute(NameOID.COMMON_NAME, user)]
        if group:
            subject.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, group))
        uses = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH])
        unsigned = self._unsigned(x509.Name(subject), key.public_key()).add_extension(uses, critical=False)
        if names := [_host(host) for host in hosts]:
            unsigned = unsigned.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate, key_file = self.folder / f"{name}.crt", self.folder / f"{name}.key"
        certificate.write_bytes(unsigned.sign(self._ca_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        _write_key(key_file, key)
        return certificate, key_file

    def kubeconfig(self, path: Path, server: str, user: dict[str, str], namespace: str = "default") -> Path:
        """Write a kubeconfig for the API server at URL `server`; `user` as in a kubeconfig (certificate and key, or token)."""
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": {"server": server, "certificate-authority": str(self.ca)}}],
            "users": [{"name": "user", "user": user}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "user", "namespace": namespace}}],
            "current-context": "tests",
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    def kubeconfig_by_certificate(self, path: Path, server: str, user: str, group: str = "") -> Path:
        """A kubeconfig with a new client certificate for `user` in `group`."""
        certificate, key = self.certificate(path.stem, user, group)
        return self.kubeconfig(path, server, {"client-certificate": str(certificate), "client-key": str(key)})

    def _unsigned(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._ca_name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + _LIFETIME)
        )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
