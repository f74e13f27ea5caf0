"""`halog demo`: a real data set replayed into a real cluster while its nodes join, leave, are killed and stopped.

The demo process owns an embedded site and starts four node processes and one client process; all of them die with it.
It hurts the nodes in the middle, and believes nobody at the end: objects are compared with totals taken straight from
the CSV and with what the mapper says, every copy with every other, and the client's journal with the log. Nothing here
is used by halog itself.

    options, result          plain values: what was asked for, what came out
    dataset, rows, totals    the flights: fetched once, read twice, by the client and by the judge
    model                    the managed classes
    cluster, processes       configuration and children
    child, client, replay, exactly, journal   what runs in the children, beside `halog node start`
    schedule, moves, probe   when nodes are hurt or changed, how they are changed, and how long that was felt
    verify_*                 the three questions at the end
    view, run                the live display, and the play itself
    split                    the other story: two sites lose each other, and become one again
"""
