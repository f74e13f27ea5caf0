"""A call of every command that names something, with names that exist; what is named stands in braces."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import click

from halog.cli import main as frame

KNOWN = {
    "node": "A",
    "partition": "p-0",
    "policy": "p",
    "type": "Aircraft",
    "key": "N1",
    "zone": "home",
    "site": "west",
    "plan": "0123abcd",
    "version": "1",
    "merge": "00ff",
    "hold": "audit",
    "txn": "00" * 16,
    "definition": "00",
}

CALLS = {
    "acl kafka": ["acl kafka --role node --principal User:a --check"],
    "acl zookeeper": ["acl zookeeper --check"],
    "audit": ["audit"],
    "certs check": [],
    "certs create-ca": [],
    "certs create-node": [],
    "certs create-server": [],
    "certs create-user": [],
    "certs list": [],
    "certs reload": ["certs reload --node {node}"],
    "certs renew": [],
    "certs rotate-ca abort": [],
    "certs rotate-ca begin": [],
    "certs rotate-ca finish": [],
    "certs rotate-ca status": [],
    "certs sign": [],
    "config activate": ["config activate"],
    "config check": ["config check"],
    "config diff": ["config diff --version {version}", "config diff --with {version}"],
    "config history": ["config history"],
    "config show": ["config show --version {version}"],
    "conflicts export": [
        "conflicts export --partition {partition} -o all.jsonl",
        "conflicts export --merge {merge} -o all.jsonl",
    ],
    "conflicts list": ["conflicts list --source {site}", "conflicts list --source west --partition {partition}"],
    "conflicts settle": [
        "conflicts settle {type} N1 --as source",
        "conflicts settle Flight UA 1 --as source --partition {partition}",
        "conflicts settle --all --as source --merge {merge}",
        "conflicts settle --all --as source --partition {partition}",
    ],
    "conflicts show": ["conflicts show --partition {partition}", "conflicts show --open --merge {merge}"],
    "delete": ["delete {type} N1 --cluster ops", "delete Aircraft {key} --cluster ops"],
    "demo": [],
    "doctor": [],
    "down": [],
    "drain": ["drain {node}", "drain {node} --undo", "drain {node} --dry-run"],
    "events": ["events --partition {partition}", "events --node {node}"],
    "export": ["export {type} -o all.jsonl"],
    "failover": ["failover p-0 --to {node}", "failover {partition} --to A"],
    "get": ["get {type} N1", "get Aircraft {key}"],
    "history": ["history {partition}", "history {partition} --why", "history {partition} --discarded"],
    "import": [],
    "list": ["list {type}"],
    "log hold": ["log hold {partition} audit --for 1h"],
    "log holds": ["log holds {partition}"],
    "log release": ["log release {partition} audit", "log release p-0 {hold}"],
    "log tail": ["log tail {partition}"],
    "mapper explain": [
        "mapper explain {type} N1",
        "mapper explain --distribution --policy {policy}",
        "mapper explain {type} --distribution --keys keys.txt",
    ],
    "mapper list": ["mapper list"],
    "node list": ["node list"],
    "node new-identity": ["node new-identity --name {node}"],
    "node start": [],
    "partition accept-loss": ["partition accept-loss {partition} --cluster ops"],
    "partition define": [
        "partition define {partition} --node A --nodes A",
        "partition define p-0 --node {node} --nodes A",
        "partition define p-0 --node A --nodes A,{node}",
    ],
    "partition designate": ["partition designate {partition} A", "partition designate p-0 {node}"],
    "partition disable": ["partition disable {partition} --node A", "partition disable p-0 --node {node}"],
    "partition enable": ["partition enable {partition} --node A", "partition enable p-0 --node {node}"],
    "partition lag": ["partition lag {partition}"],
    "partition list": ["partition list"],
    "partition migrate": ["partition migrate {partition} --nodes A", "partition migrate p-0 --nodes A,{node}"],
    "partition priority": ["partition priority {partition} A high", "partition priority p-0 {node} high"],
    "partition replicate": ["partition replicate {partition}", "partition replicate p-0 --nodes {node}"],
    "partition require": ["partition require {partition} 2"],
    "partition show": ["partition show {partition}"],
    "plan apply": ["plan apply"],
    "plan cancel": ["plan cancel"],
    "plan create": ["plan create --policy {policy}", "plan create --policy {policy} --dry-run"],
    "plan list": ["plan list"],
    "plan rollback": ["plan rollback {plan}", "plan rollback --partition {partition}"],
    "plan show": ["plan show"],
    "plan status": ["plan status"],
    "rebalance": ["rebalance --policy {policy}", "rebalance --policy {policy} --dry-run", "rebalance --zone {zone}"],
    "rebalance cancel": ["rebalance cancel --policy {policy}"],
    "rebalance status": ["rebalance status"],
    "recover": [
        "recover --from-logs --dry-run --store {node}=.",
        "recover --from-logs --accept-loss {node} --cluster ops",
        "recover --from-logs --dry-run --layout-from-file {policy}",
    ],
    "restore": [
        "restore --source {site}",
        "restore --source west --partition {partition}",
        "restore --active {node}",
        "restore --active p-0={node}",
        "restore --active {partition}=A",
        "restore --from p-0={node}",
        "restore --from {partition}=A",
    ],
    "restore undo": ["restore undo --partition {partition}", "restore undo --merge {merge}"],
    "safe-to-stop": ["safe-to-stop {node}"],
    "site demote": ["site demote --to {site}", "site demote --to west --partition {partition}"],
    "site lag": ["site lag --partition {partition}"],
    "site let-go": ["site let-go {site} --cluster ops", "site let-go west --partition {partition} --cluster ops"],
    "site list": ["site list"],
    "site metrics": ["site metrics"],
    "site promote": ["site promote --partition {partition}"],
    "status": ["status"],
    "type list": ["type list {type}"],
    "type retire": ["type retire {type} 00", "type retire Aircraft {definition}"],
    "txn abort": ["txn abort {txn}"],
    "txn commit": ["txn commit {txn}"],
    "txn list": ["txn list"],
    "txn show": ["txn show {txn}"],
    "up": [],
    "upgrade can-rollback": ["upgrade can-rollback"],
    "upgrade finish": ["upgrade finish"],
    "upgrade pause": ["upgrade pause"],
    "upgrade plan": ["upgrade plan"],
    "upgrade rollback": ["upgrade rollback"],
    "upgrade start": ["upgrade start --one {node}", "upgrade start --all"],
    "upgrade status": ["upgrade status"],
    "version": [],
    "zone list": ["zone list"],
    "zone quorum": ["zone quorum {zone} --off --cluster ops"],
    "zone show": ["zone show {zone}"],
}
"""By command; a command that is called by no name and needs no cluster has none."""


def commands() -> Iterator[tuple[str, click.Command]]:
    """Every command there is, by its name, groups that do nothing by themselves left out."""
    for name, (where, _) in frame.COMMANDS.items():
        module, _, attribute = where.partition(":")
        yield from _below(name, getattr(import_module(module), attribute))


def _below(name: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    if not isinstance(command, click.Group) or command.invoke_without_command:
        yield name, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            below = command.get_command(context, each)
            assert below is not None
            yield from _below(f"{name} {each}", below)


def named(call: str) -> list[str]:
    """The kinds of names in a call."""
    return [kind for kind in KNOWN if f"{{{kind}}}" in call]


def words(call: str, **names: str) -> list[str]:
    """The call's words, with these names in place of those that exist."""
    return call.format(**{**KNOWN, **names}).split()
