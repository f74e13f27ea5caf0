"""The judge of `tests.faults.apart`, a process: both clients' journals against what both sites have. Says one line."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import halog
from halog.config import load_config
from halog.demo.journal import read
from halog.demo.split import journal, reading, verify
from halog.demo.split.run import AGREED
from halog.demo.verify_copies import placed_by
from tests.integration.sites.two import EAST, NAMES, WEST


def main() -> None:
    """Order in argv: configurations and journals by site, and the report of the merge."""
    order = json.loads(sys.argv[1])
    claims = {site: journal.claims(read(Path(order[f"{site}_journal"]))) for site in NAMES}
    conflicts = [o for o in reading.exported(Path(order["report"])) if o["is"] not in AGREED]
    nodes = {site: halog.node(order[site], name=f"{site}-judge") for site in NAMES}
    try:
        verdict = verify.judge(claims[WEST], claims[EAST], reading.seen(nodes[EAST]), reading.reported(conflicts))
        asks = {f"{site}-{n}": nodes[site].runtime.router.request for site in NAMES for n in (1, 2)}
        partitions = list(nodes[EAST].runtime.router.tables)
        copies = reading.copies(asks, partitions, placed_by(load_config(Path(order[EAST])), "p"))
    finally:
        for node in nodes.values():
            node.close()
    counted = asdict(verify.conflicts(o["is"] for o in conflicts))
    found: dict[str, Any] = {
        "unaccounted": verdict.unaccounted,
        "wrong": verdict.wrong,
        "examples": verdict.examples,
        "acknowledged": {site: claims[site].acknowledged for site in NAMES},
        "conflicts": counted,
        "objects": copies.objects,
        "mismatches": copies.mismatches,
        "misplaced": copies.misplaced,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
