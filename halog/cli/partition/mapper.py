"""This module has the commands `halog mapper list|explain`. They say which partition a key belongs to, and why, and how
evenly keys spread (P6). They only read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from halog.cli.shared.cluster_options import ClusterOptions, cluster_options
from halog.cli.shared.messages import echo_facts
from halog.cli.shared.options import Name, Text, number_of
from halog.cli.shared.output import emit, emit_json, emit_table
from halog.config.mapper import is_at_create

if TYPE_CHECKING:
    from halog.cli.partition.distribution import Distribution, Growth, Share

SAMPLE = 10_000
"""So many made-up keys are enough for twelve partitions to show their shares to within some per cent."""
MOST_KEYS = 10_000_000
"""So many keys are made up and counted in a minute."""
MOST_NODES = 4_096
"""A policy may have as many partitions: more nodes would have none."""

_WHO = {False: "its turn is", True: "the mapper says, which is asked then, with the object in hand"}
"""The keys say whether the mapper is asked at create."""
_BY = {"name": "", "base": " by inheritance", "every type": " for every type"}


@click.group()
def mapper() -> None:
    """Say which partition a key belongs to, and how evenly keys spread.

    \b
    Examples:
      halog mapper list
      halog mapper explain Aircraft N14228
      halog mapper explain --distribution --policy fleet --partitions 24
    """


@mapper.command("list")
@cluster_options
def list_(options: ClusterOptions) -> None:
    """List the policies with their mappers, as the cluster holds them, and the types bound to each.

    \b
    Examples:
      halog mapper list
      halog mapper list --format json
    """
    from halog.cli.partition.mapper_views import listed

    with options.connect() as connection:
        policies = listed(connection)
    rows = [
        (p["policy"], p["kind"], p["partitions"], p["mapper"], p["version"], _text(p["parameters"]), _words(p["types"]))
        for p in policies
    ]
    emit(options.format, policies, ["policy", "kind", "partitions", "mapper", "version", "parameters", "types"], rows)


@mapper.command()
@click.argument("words", type=Text(), metavar="[TYPE] [KEY]...", nargs=-1)
@click.option("--distribution", is_flag=True, help="Say how keys spread, instead of where one belongs.")
@click.option(
    "--policy",
    type=Name(),
    metavar="NAME",
    help="With --distribution: over this policy; else the type's, or the only one.",
)
@click.option(
    "--keys",
    "file",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="With --distribution: these keys, one a line as given here, or a file of `halog export`; - is standard input.",
)
@click.option(
    "--sample",
    type=number_of(1, MOST_KEYS),
    metavar="N",
    help=f"With --distribution: this many made-up keys.  [without a type or --keys: {SAMPLE}]",
)
@click.option(
    "--partitions", type=number_of(1), metavar="N", help="With --distribution: as if there were this many partitions."
)
@click.option(
    "--nodes",
    "added",
    type=number_of(1, MOST_NODES),
    metavar="N",
    help="With --distribution: as if the zone had this many more nodes.",
)
@cluster_options
def explain(
    words: tuple[str, ...],
    distribution: bool,
    policy: str | None,
    file: Path | None,
    sample: int | None,
    partitions: int | None,
    added: int | None,
    options: ClusterOptions,
) -> None:
    """Say where an object of a type and key belongs, step by step; it need not exist.

    With --distribution it shows how keys spread over partitions and nodes. It also shows how many keys would move if
    there were more of them, beside the fewest that an even spread takes. The keys are those of a file, made-up ones,
    or, if only a type is given, those of all its objects.

    \b
    Examples:
      halog mapper explain Aircraft N14228
      halog mapper explain Flight UA 99 --format json
      halog mapper explain --distribution --policy fleet --sample 100000 --partitions 24
      halog mapper explain Aircraft --distribution --nodes 1
      halog mapper explain Aircraft --distribution --keys tails.txt
    """
    from halog.cli.partition.mapper_views import DistributionQuery, explained, spread_of
    from halog.cli.shared.files import Source

    if not distribution and (len(words) < 2 or policy or file or sample or partitions or added):
        raise click.UsageError("give a type and a key, or --distribution with its options")
    if distribution and (len(words) > 1 or (file and sample) or (words and sample)):
        raise click.UsageError(
            "with --distribution give a type or none, and --keys or --sample; made-up keys have no type"
        )
    with options.connect() as connection:
        if distribution:
            asked = DistributionQuery(
                words[0] if words else "",
                policy,
                None if file is None else Source(file),
                sample or SAMPLE,
                partitions,
                added,
            )
            _show_spread(spread_of(connection, asked), options.format)
        else:
            _show_one(explained(connection, words[0], words[1:]), options.format)


def _show_one(found: dict[str, Any], format_: str) -> None:
    if format_ == "json":
        emit_json(found)
        return
    mapper_ = found["mapper"]
    new = is_at_create(mapper_["name"])
    facts: list[tuple[str, object]] = [
        ("type", f"{found['type']} ({' < '.join(found['chain'])})" if len(found["chain"]) > 1 else found["type"]),
        ("binding", f'"{found["binding"]}" = "{found["policy"]}"{_BY[found["by"]]}'),
        ("policy", f"{found['policy']}: {found['kind']}, {found['partitions']} partitions"),
        (
            "mapper",
            f"{mapper_['name']}, version {mapper_['version']}, {_text(mapper_['parameters']) or 'no parameters'}",
        ),
        ("key", f"{', '.join(map(repr, found['routing_values']))} ({found['routing_key']})"),
    ]
    if found["slot"] is not None:
        facts.append(("slot", f"{found['slot']} of {mapper_['parameters']['ring_size']}, hash {found['hash']}"))
    if found["entry"] is not None:
        facts.append(("entry", f"in {found['entry']}, if there is such an object; it says in which partition that is"))
    facts += [
        ("partition", found["partition"] or f"none: there is no such object; a new one goes where {_WHO[new]}"),
        ("nodes", ", ".join(f"{n['node']} ({n['role']})" for n in found["nodes"]) or "none"),
        *(
            (f"  {name}", f"belongs in {partition}" if partition else "has a key directory; there is none of this key")
            for name, partition in found["subclasses"].items()
        ),
    ]
    echo_facts(facts)


def _show_spread(found: Distribution, format_: str) -> None:
    import msgspec

    if format_ == "json":
        emit_json(
            {
                **msgspec.to_builtins(found),
                "partitions_max_of_mean": _most(found.partitions),
                "leads_max_of_mean": _most(found.leads),
                "copies_max_of_mean": _most(found.copies),
            }
        )
        return
    echo_facts(
        [
            ("policy", found.policy),
            ("keys", f"{found.keys:,}"),
            ("partitions", f"{len(found.partitions)}, the fullest has {_most(found.partitions)} of the mean"),
            ("active", f"{len(found.leads)} nodes, the fullest has {_most(found.leads)} of the mean"),
            ("copies", f"{len(found.copies)} nodes, the fullest has {_most(found.copies)} of the mean"),
            *((f"{g.after} {g.what}", _growth(g)) for g in found.growth),
        ]
    )
    emit_table(["partition", "keys", "of mean"], [(s.name, s.keys, f"{s.of_mean:.3f}") for s in found.partitions])
    leads = {s.name: s.keys for s in found.leads}
    rows = [(s.name, leads.get(s.name, 0), s.keys, f"{s.of_mean:.3f}") for s in found.copies]
    emit_table(["node", "preferred for", "copies", "of mean"], rows)


def _growth(growth: Growth) -> str:
    what = "keys would belong elsewhere" if growth.what == "partitions" else "copies of keys would be elsewhere"
    return f"{growth.moved:,} {what} than with {growth.before}; an even spread takes {growth.minimum:,}"


def _most(shares: list[Share]) -> float:
    return max((s.of_mean for s in shares), default=0.0)


def _text(parameters: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in parameters.items())


def _words(names: list[str]) -> str:
    return ", ".join(names) or "none"
