"""An operator's command asks nodes of other sites here what they say of themselves.

It never changes anything there. Where a site cannot be reached, or may not be asked, the reason is the answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

from halog.cli.shared.zone_views import SiteReport
from halog.errors import HalogError
from halog.metadata.nodes import read_nodes
from halog.metadata.zone_switches import read_switch
from halog.runtime.rpc import frames
from halog.runtime.rpc.cluster_view import ClusterView

if TYPE_CHECKING:
    from halog.cli.shared.connection import ClusterConnection
    from halog.metadata.nodes import NodeInfo

ANSWER_S: Final = 2.0
"""A node of another site that takes longer answers no request in time either. It is twice the time of a node of this
site."""

Said = Mapping[str, Any]


def hear_zones(connection: ClusterConnection, site: str, zones: Sequence[str]) -> SiteReport:
    """Return what another site says of these zones."""
    try:
        remote = connection.adapters.reach(site)
        try:
            infos = read_nodes(remote.coordinator, remote.coordinator.children("nodes"))
            switches = {zone: read_switch(remote.coordinator, zone) for zone in zones}
        finally:
            remote.close()
    except HalogError as e:
        return SiteReport(why=f"cannot be reached: {e}")
    if not connection.config.other_sites[site].requests:
        why = f"its nodes are not asked: [sites.{site}] has requests = false"
        return SiteReport({name: {"error": why} for name, info in infos.items() if info.hosts}, switches, why)
    return SiteReport(ask_site(connection, site, infos), switches)


def ask_site(connection: ClusterConnection, site: str, infos: Mapping[str, NodeInfo]) -> dict[str, Said]:
    """Return what each hosting node of another site says of itself, or an error. `infos`: those registered there."""
    known = ClusterView(connection.adapters.channel, connection.config.other_sites[site].nodes)
    known.configure(connection.config.discovery)
    known.nodes_seen(dict(infos))
    hosts = [name for name, info in infos.items() if info.hosts]

    def ask(node: str) -> Said:
        try:
            at = known.addresses_of(node)
            answer = at.ask(connection.adapters.channel, frames.encode(frames.StatusRequest()), ANSWER_S)
            reply = frames.decode_reply(answer)
        except HalogError as error:
            return {"error": str(error)}
        return reply.status if isinstance(reply, frames.StatusReply) else {"error": "it answered no status"}

    with ThreadPoolExecutor(8) as pool:
        return dict(zip(hosts, pool.map(ask, hosts), strict=True))
