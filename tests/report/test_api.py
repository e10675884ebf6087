"""The JSON API: requests by its own OpenAPI document, and the numbers of the pages and tables."""

import json
import re
from collections.abc import Iterator
from datetime import datetime
from urllib.parse import quote

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import checks
from schemathesis.generation import GenerationMode
from schemathesis.specs.openapi import checks as openapi_checks
from tests.cli.running import run, write_tables
from tests.report.fleet import START_MS, tables
from tests.report.served import bounced, following, quiet
from tests.report.test_serving import EVIL, LOCAL
from werkzeug.test import Client

from holdfast.errors import ConfigError
from holdfast.fleet.report.serving import api
from holdfast.fleet.report.serving.application import ServedPages
from holdfast.fleet.report.serving.group_index import ALL, TimeRange, read_range
from holdfast.fleet.report.serving.served_fleet import ServedFleet

CHECKS = [
    checks.not_a_server_error,
    *(
        getattr(openapi_checks, name)
        for name in (
            "status_code_conformance",
            "content_type_conformance",
            "response_headers_conformance",
            "response_schema_conformance",
            "negative_data_rejection",
            "positive_data_acceptance",
        )
    ),
]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedFleet]:
    etl = bounced("etl")
    for at in range(9):
        etl.lag_at(at, {"orders": at, "t": None}, seconds=at / 8)
    scripts = (*(quiet(name) for name in EVIL), etl, quiet("billing"))
    folder = write_tables(tables(*scripts), tmp_path_factory.mktemp("tables"))
    with following(folder) as found:
        yield found


@pytest.fixture(scope="module")
def client(fleet: ServedFleet) -> Client:
    return Client(ServedPages(fleet, is_local=True))


def get(client: Client, path: str, status: int = 200) -> dict:
    answer = client.get(path, headers=LOCAL)
    assert answer.status_code == status, answer.text
    assert answer.mimetype == "application/json"
    return answer.json


PATHS = [*api.openapi()["paths"]]


@pytest.mark.parametrize("mode", GenerationMode)
@pytest.mark.parametrize("path", PATHS)
def test_requests_by_the_document_are_answered_by_the_document(
    fleet: ServedFleet, path: str, mode: GenerationMode
) -> None:
    pages = ServedPages(fleet, is_local=True)
    schema = schemathesis.openapi.from_wsgi("/api/openapi.json", pages, headers=LOCAL)
    operation = schema[path]["GET"]

    @settings(
        max_examples=10,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=operation.as_strategy(generation_mode=mode), data=st.data())
    def holds(case: schemathesis.Case, data: st.DataObject) -> None:
        if data.draw(st.booleans()) and "group" in case.path_parameters:
            case.path_parameters["group"] = data.draw(st.sampled_from(["etl", "billing"]))
        case.call_and_validate(headers=LOCAL, checks=CHECKS)

    holds()


def test_a_group_is_what_its_page_and_the_doctor_say(fleet: ServedFleet, client: Client) -> None:
    told = json.loads(run("doctor", "--input", fleet.folder, "--format", "json").out)["groups"]
    found = get(client, "/api/groups")
    assert found["total"] == len(told)
    assert [row["group"] for row in found["rows"]] == [one["group"] for one in told]
    for row, one in zip(found["rows"], told, strict=True):
        for name in ("state", "members", "rebalances", "downtime_seconds"):
            assert row[name] == one[name]
        codes = dict.fromkeys(f["code"] for f in one["findings"])
        assert {f["code"] for f in row["findings"]} == codes.keys()
        alone = get(client, "/api/groups/" + quote(one["group"], safe=""))
        assert alone["group"] == one["group"]
        people = alone.pop("present_members")
        assert len(people) == one["members"] and not any(m["awaited"] for m in people)
        assert {**alone, "findings": []} == {**one, "findings": []}
        assert [f["text"] for f in alone["findings"]] == [f["text"] for f in one["findings"]]
    (etl,) = (row for row in found["rows"] if row["group"] == "etl")
    assert (etl["lag"], etl["rebalancing_seconds"]) == (12, None)


@pytest.mark.parametrize("table", api.SHOWN)
def test_rows_are_those_of_the_table(fleet: ServedFleet, client: Client, table: str) -> None:
    told = run("history", "--input", fleet.folder, "--table", table, "--format", "json")
    if table == "lag":
        told = run("lag", "--input", fleet.folder, "--format", "json")
    mine = [row for row in json.loads(told.out)["rows"] if row["group"] == "etl"]
    found = get(client, f"/api/groups/etl/{table}?size=1000")
    assert [*map(plain, found["rows"])] == [*map(plain, mine)]
    assert found["total"] == len(mine)
    pages = [
        row
        for page in range(1, len(mine) // 7 + 2)
        for row in get(client, f"/api/groups/etl/{table}?size=7&page={page}")["rows"]
    ]
    assert pages == found["rows"]


def plain(row: dict) -> dict:
    """A row with times and numbers of one precision: the command prints microseconds."""
    found = {}
    for name, value in row.items():
        is_time = isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\dT.*Z", value)
        ms = round(datetime.fromisoformat(value).timestamp() * 1000) if is_time else value
        found[name] = round(ms, 3) if isinstance(ms, float) else ms
    return found


def test_a_time_range_cuts_events_and_their_sums(fleet: ServedFleet, client: Client) -> None:
    every = get(client, "/api/groups/etl/rebalances")["rows"]
    at = [round(datetime.fromisoformat(row["timestamp"]).timestamp() * 1000) for row in every]
    middle = at[len(at) // 2]
    for query, inside in (
        (f"from={middle}", [ms >= middle for ms in at]),
        (f"to={middle}", [ms <= middle for ms in at]),
        (f"from={middle}&to={middle}", [ms == middle for ms in at]),
        (f"from={middle + 1}&to={middle}", [False] * len(at)),
    ):
        rows = get(client, f"/api/groups/etl/rebalances?{query}")["rows"]
        assert rows == [row for row, is_inside in zip(every, inside, strict=True) if is_inside]
        (etl,) = (r for r in get(client, f"/api/groups?{query}")["rows"] if r["group"] == "etl")
        assert etl["rebalances"] == sum(row["cause"] != "first_seen" for row in rows)
    newest = get(client, "/api/groups/etl/rebalances?sort=generation&order=desc")["rows"]
    assert newest == every[::-1]


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ({}, ALL),
        ({"from": "all"}, ALL),
        ({"from": "6h"}, TimeRange(from_ms=START_MS - 6 * 3_600_000)),
        (
            {"from": "90s", "to": "1m"},
            TimeRange(from_ms=START_MS - 90_000, to_ms=START_MS - 60_000),
        ),
        ({"from": "1763712000000"}, TimeRange(from_ms=1_763_712_000_000)),
        ({"from": "2025-11-21T08:00:00Z"}, TimeRange(from_ms=1_763_712_000_000)),
        ({"from": "2025-11-21 09:00:00+01:00"}, TimeRange(from_ms=1_763_712_000_000)),
    ],
)
def test_a_range_is_read_in_three_forms(words: dict[str, str], found: TimeRange) -> None:
    assert read_range(words, START_MS) == found


@pytest.mark.parametrize("text", ["soon", "6", "-6h", "2025-13-01", "99999h", "1e9", "6h ago"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^to: expected a moment"):
        read_range({"to": text}, START_MS)


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/groups?page=0", 400),
        ("/api/groups?size=1001", 400),
        ("/api/groups?sort=zzz", 400),
        ("/api/groups/etl/rebalances?sort=member_id", 400),
        ("/api/groups/etl/offset_commits", 404),
        ("/api/groups/nobody", 404),
        ("/api/groups/nobody/lag", 404),
        ("/api/nothing", 404),
    ],
)
def test_an_error_is_a_sentence(client: Client, path: str, status: int) -> None:
    assert get(client, path, status).keys() == {"error"}


def test_the_api_needs_the_token_as_pages_do(fleet: ServedFleet) -> None:
    pages = Client(ServedPages(fleet, is_local=False, token="t" * 20))
    for path in ("/api/openapi.json", "/api/groups", "/api/groups/etl"):
        assert pages.get(path).status_code == 401
        bearer = {"Authorization": "Bearer " + "t" * 20}
        assert pages.get(path, headers=bearer).status_code == 200
