"""Rows as the client reads them, totals as the judge counts them, held to a handful of real lines."""

from __future__ import annotations

import csv
import datetime as dt

from halog.demo import rows, totals
from halog.demo.model import NO_TAIL, FlightStatus

HEADER = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,"
HEADER += "origin,dest,air_time,distance,hour,minute,time_hour"
LINES = (
    "2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,IAH,227,1400,5,15,2013-01-01T10:00:00Z",
    "2013,1,1,1525,1530,-5,1934,1805,NA,MQ,4525,N719MQ,LGA,XNA,NA,1147,15,30,2013-01-01T20:00:00Z",
    "2013,1,1,NA,1630,NA,NA,1815,NA,EV,4308,N18120,EWR,RDU,NA,416,16,30,2013-01-01T21:00:00Z",
    "2013,1,2,NA,1540,NA,NA,1747,NA,EV,4352,NA,EWR,CVG,NA,569,15,40,2013-01-02T20:00:00Z",
    "2013,1,1,2016,1930,46,NA,2220,NA,EV,4204,N14168,EWR,OKC,NA,1325,19,30,2013-01-02T00:00:00Z",
    "2013,1,3,517,515,2,830,819,11,UA,1,N14228,EWR,IAH,200,1400,5,15,2013-01-03T10:00:00Z",
)
RECORDS = list(csv.DictReader([HEADER, *LINES]))


def test_a_row_with_air_time_is_a_landing() -> None:
    row = next(rows.parse(RECORDS))
    assert row.status is FlightStatus.LANDED
    assert row.key == (dt.datetime(2013, 1, 1, 10, tzinfo=dt.UTC), "UA", 1545, "N14228")
    assert (row.number, row.destination, row.miles, row.minutes) == (0, "IAH", 1400, 227)


def test_a_diverted_flight_arrived_without_air_time_a_cancelled_one_did_not_arrive() -> None:
    statuses = [r.status for r in rows.parse(RECORDS)]
    assert statuses[1:5] == [
        FlightStatus.DIVERTED,
        FlightStatus.CANCELLED,
        FlightStatus.CANCELLED,
        FlightStatus.CANCELLED,
    ]


def test_a_missing_tail_is_none_by_name() -> None:
    assert [r.tail for r in rows.parse(RECORDS)][3] == NO_TAIL == "NONE"


def test_totals_are_counted_from_the_text_alone() -> None:
    found = totals.count(RECORDS)
    assert (found.rows, found.no_tail, found.transactions) == (6, 1, 6)
    assert found.by_status == {"landed": 2, "diverted": 1, "cancelled": 3}
    assert found.aircraft == {"N14228": (2, 2800, 427)}
    assert found.airports == {"IAH": (2, 2800, 427)}
    assert found.flights["2013-01-02T20:00:00Z", "EV", 4352, "NONE"] == "cancelled"
