"""This package is `halog demo`: a real data set replayed into a real cluster while its nodes join, leave, are killed
and stopped.

The demo process owns an embedded site and starts four node processes and one client process; all of them die with it.
It hurts the nodes in the middle, and trusts nobody at the end: objects are compared with totals taken straight from the
CSV and with what the mapper says, every copy with every other, and the client's journal with the log. Nothing here is
used by halog itself.

    options, result          plain values: what was asked for, what came out
    dataset, rows, totals    the flights: fetched once, read twice, by the client and by the judge
    model                    the managed classes
    cluster, staging, stage  configuration, and everything that runs
    processes, child         the children; client_reports: what a client says
    client, replay           what the client process does
    client_process, ordered_work, exactly, journal   what every client process is made of
    schedule, moves, probe   when nodes are hurt or changed, how they are changed, and how long that was felt
    verify_*, complaints     the three questions at the end
    scene, view, run         what is shown, the live display, and the play itself
    split                    the other story: two sites lose each other, and become one again
"""
