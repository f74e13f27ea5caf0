"""This package is `halog demo --split-brain`: two real sites lose each other, both go on, and become one again without
losing a write.

The demo process owns two embedded sites, the line between them, and a client process and two node processes at each. It
cuts the line in the middle of traffic, lets the other site take over, heals the line, and then does what an operator
would do, with the operator's own commands. It trusts nobody at the end: each client's journal says what was
acknowledged, and all of it must be accounted for.

    model            what is managed, and the triggers that add up what both sites counted
    steps            what each site's client does, from the flights
    traffic          what the client processes do; journal: what they were told
    sites, stage     servers, lines, configurations, processes, and `halog …` as an operator runs it
    reading, verify  what is there at the end, and whether all of it adds up
    scene, picture, report, result   what is shown of it
    run              the play itself
"""
