"""This module has the command `halog version`."""

from __future__ import annotations

import platform

import click

from halog.cli.shared.output import emit, format_option


@click.command()
@format_option
def version(format_: str) -> None:
    """Print the versions of halog and of what it runs on.

    \b
    Example:
      halog version --format json
    """
    from importlib.metadata import PackageNotFoundError, version as installed

    from halog.embedded.model import KAFKA_VERSION, ZOOKEEPER_VERSION
    from halog.release import RELEASE

    versions: dict[str, str | None] = {"halog": RELEASE, "python": platform.python_version()}
    for package in ("confluent-kafka", "kazoo", "fastavro", "rocksdict", "pyspark"):
        try:
            versions[package] = installed(package)
        except PackageNotFoundError:
            versions[package] = None
    versions |= {"embedded_kafka": KAFKA_VERSION, "embedded_zookeeper": ZOOKEEPER_VERSION}
    rows = [(name.replace("_", " "), number or "not installed") for name, number in versions.items()]
    emit(format_, versions, ("what", "version"), rows)
