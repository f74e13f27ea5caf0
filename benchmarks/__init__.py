"""What halog costs beside raw Kafka from Python, measured in one run: `make bench`; see docs/performance.md.

    run        the command: starts the site, runs the suites, prints the table, judges
    suite_*    what is measured, one file per subject
    scene      a site and a cluster of real node processes
    processes  children of the harness; `worker` is their entry point
    raw        what the baseline's processes do    app     what halog's application processes do
    loop       closed loops of n threads           figures arithmetic and rows (pure)

No figure comes from the harness process itself: it only tells others what to do, so it cannot disturb them.
"""
