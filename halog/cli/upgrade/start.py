"""`halog upgrade start|rollback` brings nodes to a release, one after the other, or back to what they ran (U1)."""

from __future__ import annotations

import shlex
import shutil
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import click

from halog.cli.partition.safe_to_stop import check_known
from halog.cli.shared.cluster_options import ClusterOptions, cluster_options_after
from halog.cli.shared.messages import progress, say
from halog.cli.shared.options import TIMEOUT_S, Name, Text
from halog.cli.shared.output import emit_json
from halog.cli.upgrade.group import upgrade
from halog.cli.upgrade.scope import hosting_names, release_meant, to_option

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from halog.cli.shared.connection import ClusterConnection
    from halog.cli.upgrade.fleet import ConnectedFleet
    from halog.metadata.upgrades import Upgrade
    from halog.runtime.upgrade.driver import UpgradeProgress

WAIT_S = 600.0
"""A machine may need minutes to get and start another release, and a copy to catch up."""

hook_option = click.option(
    "--hook",
    type=Text(),
    default=None,
    metavar="CMD",
    help="Restarts a node: run without a shell, with HALOG_NODE and HALOG_TO in its environment.  [default: you do]",
)
deep_option = click.option(
    "--deep", is_flag=True, help="Let each node read all that it has stored, too: seconds for a million objects."
)
waiting = cluster_options_after(WAIT_S, "Wait no longer for each single step (exit 5 or 6); the upgrade pauses.")


def hook_of(text: str | None) -> list[str]:
    """Return the words of a hook; none: there is no hook. UsageError if there is no such program."""
    if text is None:
        return []
    try:
        words = shlex.split(text)
    except ValueError as e:
        raise click.UsageError(f"--hook {text!r} cannot be taken apart as a shell would: {e}") from e
    if not words or shutil.which(words[0]) is None:
        raise click.UsageError(f"--hook {text!r}: there is no program {words[0] if words else ''!r} to be run")
    return words


@upgrade.command("start")
@click.option("--one", type=Name(), default=None, metavar="NODE", help="Only this node; then the upgrade pauses.")
@click.option("--all", "all_", is_flag=True, help="All nodes that do not run it yet.")
@hook_option
@to_option
@deep_option
@waiting
def start_(one: str | None, all_: bool, hook: str | None, to: str | None, deep: bool, options: ClusterOptions) -> None:
    """Bring nodes to a release, one after the other, under traffic; or go on with that.

    Each node is proved to be safe to stop, hands its partitions over, to new nodes first, and is restarted by the hook,
    or by you when the command says so. The next one follows when it is back under that release, has caught up, and has
    the same objects as the active copies. Whatever is not so pauses the upgrade: exit code 5 or 6, and `halog upgrade
    status` says why. A command that was interrupted or killed is repeated, and goes on.

    \b
    Examples:
      halog upgrade start --one C
      halog upgrade start --all --hook "/usr/local/bin/restart-halog"
      halog upgrade start --all --to 0.3.0 --timeout 1200
    """
    from halog.cli.upgrade.fleet import ConnectedFleet
    from halog.runtime.upgrade.order import ordered
    from halog.runtime.upgrade.record import begun, to_come

    if (one is None) != all_:
        raise click.UsageError("say which nodes: --one NODE, or --all")
    words = hook_of(hook)
    with options.connect(at_most_s=TIMEOUT_S) as connection:
        if one is not None:
            check_known(connection, (one,))
            _check_hosts(connection, one)
        with _alone(connection, options.timeout_s) as found:
            target = release_meant(to, found)
            _check_needed(connection, found, target, one)
            order = ordered(hosting_names(connection), connection.tables)
            first = found is None or found.over
            begin = partial(begun, to=target, order=order, nodes=dict(connection.nodes))
            now = _write(connection, lambda before, command: begin(before, command=command))
            left = to_come(now)
            nodes = left if one is None else [n for n in left if n == one]
            fleet = ConnectedFleet(connection, words, options.timeout_s, deep=deep)
            _drive(connection, fleet, now, nodes, options, "began" if first else "goes on")


@upgrade.command("rollback")
@hook_option
@deep_option
@waiting
def rollback_(hook: str | None, deep: bool, options: ClusterOptions) -> None:
    """Take the nodes back to what they ran before the upgrade, one after the other, the last one first.

    It goes as `halog upgrade start` does. Refused with exit code 5 once the level was raised above what they ran knows;
    `halog upgrade can-rollback` proves that nothing is there that it could not read.

    \b
    Examples:
      halog upgrade rollback
      halog upgrade rollback --hook "/usr/local/bin/restart-halog"
    """
    from halog.cli.upgrade.fleet import ConnectedFleet
    from halog.metadata.cluster_level import read_level
    from halog.runtime.upgrade.record import to_come, turned_back

    words = hook_of(hook)
    with options.connect(at_most_s=TIMEOUT_S) as connection, _alone(connection, options.timeout_s):
        level, nodes = read_level(connection.coordinator).level, dict(connection.nodes)
        now = _write(connection, lambda before, command: turned_back(before, level, nodes, command))
        if unknown := [n for n in now.order if n not in now.before]:
            say(f"nobody knows what {', '.join(unknown)} ran before: left as it is")
        fleet = ConnectedFleet(connection, words, options.timeout_s, deep=deep)
        _drive(connection, fleet, now, to_come(now), options, "goes back")


def _check_hosts(connection: ClusterConnection, node: str) -> None:
    from halog.errors import RefusedError

    if node not in hosting_names(connection):
        raise RefusedError(
            f"{node} is in no zone and hosts nothing: restart it under the other release as it is", node=node
        )


@contextmanager
def _alone(connection: ClusterConnection, patience_s: float) -> Iterator[Upgrade | None]:
    """Be the only command that is at the upgrade, and yield the record as it was then."""
    from halog.metadata.identity import who
    from halog.metadata.upgrades import alone, read_upgrade

    c = connection.coordinator
    session_s = connection.config.timing.session_timeout_ms / 1000
    with alone(c, who(), wait_s=min(patience_s, 2 * session_s)):
        yield read_upgrade(c)


def _write(connection: ClusterConnection, made: Callable[..., Upgrade]) -> Upgrade:
    from halog.cli.upgrade.telling import command_now
    from halog.metadata.upgrades import change

    command = command_now()
    now = change(connection.coordinator, lambda before: made(before, command))
    assert now is not None
    return now


def _check_needed(connection: ClusterConnection, found: Upgrade | None, target: str, one: str | None) -> None:
    """Raise NothingToDoError where every node that is meant runs the release, and nothing of an upgrade is left."""
    from halog.errors import NothingToDoError

    names = hosting_names(connection) if one is None else [one]
    nodes = connection.nodes
    runs = all(n in nodes and nodes[n].version == target for n in names)
    is_open = found is not None and not found.over
    proved = found is not None and all(n in found.done for n in names) and not found.back
    if runs and (proved or not is_open):
        what = "every node runs" if one is None else f"{one} runs"
        raise NothingToDoError(
            f"{what} halog {target} already; `halog upgrade finish` raises the level and ends the upgrade"
        )


def _drive(
    connection: ClusterConnection,
    fleet: ConnectedFleet,
    now: Upgrade,
    nodes: Sequence[str],
    options: ClusterOptions,
    how: str,
) -> None:
    """Bring these nodes to what they should run, and say how that goes."""
    from halog.cli.upgrade.telling import tell_step
    from halog.errors import HalogError
    from halog.runtime.support.clock import wall_ms
    from halog.runtime.upgrade.driver import UpgradeDriver, UpgradePausedError

    tell_step(connection, now, how, f"{now.by} asked for it")
    with progress() as bar:
        task = bar.add_task(f"halog {now.to}", total=len(now.order), completed=len(now.done), note="")

        def tell(step: UpgradeProgress) -> None:
            bar.update(task, completed=step.done, note=f"{step.node} {step.step}")
            if bar.disable or step.aloud:
                say(f"[{step.done}/{step.of}] {step.node} {step.step}")
            if step.ends:
                tell_step(connection, now, step.step, "it runs what it should, and has what the others have", step.node)

        driver = UpgradeDriver(fleet, connection.coordinator, now.run, tell, wall_ms, options.timeout_s)
        try:
            then = driver.go(nodes)
        except UpgradePausedError:  # whoever did that has told it
            raise
        except (HalogError, KeyboardInterrupt) as e:
            tell_step(connection, now, "paused", str(e) or "the command was interrupted")
            raise
    tell_step(connection, then, then.state, then.why)
    if options.format == "json":
        document = {"to": then.to, "state": then.state, "back": then.back, "done": list(then.done), "why": then.why}
        emit_json({**document, "not_compared": driver.uncompared})
        return
    if driver.uncompared:
        names = ", ".join(driver.uncompared)
        say(f"not compared, since a halog of theirs tells no hashes or there is one copy only: {names}")
    after = {
        "complete": "; `halog upgrade finish` ends it, `halog upgrade rollback` takes all back",
        "paused": "; go on with `halog upgrade start`",
    }
    say(f"upgrade to halog {then.to}: {then.why}{after.get(then.state, '')}")
