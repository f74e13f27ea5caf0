"""This module asks the registered nodes for the certificates that they present (`--cluster`)."""

from __future__ import annotations

import socket
import ssl
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cryptography import x509

from halog.adapters.tcp.framing import parse_address
from halog.certs.presented import PresentedCertificate
from halog.cli.shared.connection import connect
from halog.metadata.nodes import NodeInfo

MOST_THREADS = 16


def ask_nodes(config_path: Path, timeout_s: float) -> dict[str, PresentedCertificate]:
    """Return what each registered node presents. A node that does not answer within the timeout is told with the
    reason."""
    with connect(config_path, timeout_s) as connection:
        nodes = connection.nodes
    until = time.monotonic() + timeout_s
    with ThreadPoolExecutor(MOST_THREADS) as pool:
        asked = pool.map(lambda info: ask(info, until), nodes.values())
        return dict(zip(nodes, asked, strict=True))


def ask(info: NodeInfo, until: float) -> PresentedCertificate:
    """Return what a node presents. Nothing is sent to it, and its certificate is not judged here."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    left_s = max(0.05, until - time.monotonic())
    is_reached = False
    try:
        with socket.create_connection(parse_address(info.address), left_s) as plain:
            is_reached = True
            with context.wrap_socket(plain) as tls:
                data = tls.getpeercert(binary_form=True)
    except TimeoutError:
        return _silent(info, "does not answer in time")
    except (ssl.SSLError, ConnectionError) as error:
        if is_reached:
            return _silent(info, "does not speak TLS", is_plain=True)
        return _silent(info, f"does not answer: {error.strerror or error}")
    except (OSError, ValueError) as error:
        return _silent(info, f"does not answer: {error}")
    if data is None:
        return _silent(info, "presents no certificate")
    return PresentedCertificate(info.name, info.address, x509.load_der_x509_certificate(data), info.hosts)


def _silent(info: NodeInfo, reason: str, *, is_plain: bool = False) -> PresentedCertificate:
    return PresentedCertificate(info.name, info.address, None, info.hosts, reason, is_plain)
