"""The WSGI application of ``holdfast serve``: index, page of a group, metrics, state, probes.

**Rules.** It only reads: GET and HEAD. An odd ``Host`` header or path is a 400. On a loopback
address the header must name this computer. ``/health`` and ``/ready`` are for probes: they show
nothing of the tables, and need no token. With a token, every other request needs it: as
``Authorization: Bearer``, or as the cookie that the address with the token sets; the token does
not stay in the address. An answer may not be cached, framed, or read by a page of another origin.
A page has a strict policy of its own (:mod:`holdfast.fleet.report.drawing.markup`).

**Strategy.** Werkzeug parses requests, routes them and writes headers; pages come from the code of
the report. The data were read before (:mod:`holdfast.fleet.report.serving.served_fleet`), so a
request costs the making of one page.

References: RFC 9110; RFC 6750, 2.1 "Authorization Request Header Field"; Content Security Policy 3;
Fetch Metadata Request Headers.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from werkzeug.exceptions import (
    BadRequest,
    Forbidden,
    HTTPException,
    NotFound,
    ServiceUnavailable,
    Unauthorized,
)
from werkzeug.routing import BaseConverter, Map, Rule
from werkzeug.wrappers import Request, Response

from holdfast.core.names import visible
from holdfast.errors import ConfigError
from holdfast.fleet.report.drawing.markup import HtmlPage
from holdfast.fleet.report.drawing.writing import render
from holdfast.fleet.report.serving import api
from holdfast.fleet.report.serving.group_index import SEVERITIES, SORTS, IndexView
from holdfast.fleet.report.serving.index_page import bar_of, index_page, updater_text
from holdfast.fleet.report.serving.ranges import FleetView
from holdfast.fleet.report.serving.served_fleet import ServedFleet, ServedState
from holdfast.fleet.report.serving.server import is_host, names_this_computer

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIEnvironment

METRICS_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
COOKIE: Final = "holdfast"
MARK: Final = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16">
<rect width="16" height="16" rx="3" fill="#0b6b58"/>
<path d="M4 3h2v4h4V3h2v10h-2V9H6v4H4z" fill="#fff"/></svg>
"""
"""The icon of the pages."""
ALWAYS: Final[Mapping[str, str]] = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of every answer."""
PROBES: Final = frozenset({"/health", "/ready"})
_NOTHING: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class _NameConverter(BaseConverter):
    """The rest of a path, which may have any characters."""

    regex = r"(?s:.+)"
    part_isolating = False


class ServedPages:
    """The application.

    Parameters
    ----------
    is_local : bool
        Whether it listens on a loopback address.
    token : str
        Token that a client must send; empty without one.
    """

    def __init__(self, fleet: ServedFleet, *, is_local: bool, token: str = ""):
        self._fleet, self._is_local, self._token = fleet, is_local, token
        self._answers: Mapping[str, Callable[..., Response]] = {
            "api/groups": self._api_groups,
            "api/groups/<name:name>": self._api_group,
            "api/openapi.json": lambda _: _json(api.openapi()),
            "": self._index,
            "group": self._group,
            "favicon.svg": lambda _: Response(MARK, content_type="image/svg+xml"),
            "metrics": self._metrics,
            "state": self._state,
            "health": self._health,
            "ready": self._ready,
        }
        self._routes = Map(
            [Rule(f"/{name}", endpoint=name, methods=["GET"]) for name in self._answers],
            converters={"name": _NameConverter},
            merge_slashes=False,
        )

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """Answer a request."""
        request = Request(environ)
        try:
            answer = self._answer(request)
        except HTTPException as error:
            if request.path.startswith("/api/"):
                answer = _json({"error": error.description}, error.code or 500)
            else:
                answer = _plain(f"{error.description}\n", error.code or 500)
            answer.headers.extend(_more_headers(error))
        for name, value in ALWAYS.items():
            answer.headers[name] = value
        answer.headers.setdefault("Content-Security-Policy", _NOTHING)
        return answer(environ, start_response)

    def _answer(self, request: Request) -> Response:
        _check_form(request)
        self._check_host(request)
        if request.path not in PROBES and (entered := self._enter(request)):
            return entered
        endpoint, names = self._routes.bind_to_environ(request.environ).match()
        try:
            return self._answers[endpoint](request, **names)
        except ConfigError as error:
            raise BadRequest(str(error)) from error

    def _check_host(self, request: Request) -> None:
        if self._is_local and not names_this_computer(request.environ.get("HTTP_HOST")):
            raise Forbidden("the Host header does not name this computer")
        navigates = request.headers.get("Sec-Fetch-Mode", "navigate") == "navigate"
        if request.headers.get("Sec-Fetch-Site") == "cross-site" and not navigates:
            raise Forbidden("requested by a page of another site")

    def _enter(self, request: Request) -> Response | None:
        """Reject requests without the token; move a token from the address into a cookie."""
        if not self._token:
            return None
        if self._knows(request.args.get("token", "")):
            rest = [(key, value) for key, value in request.args.items(multi=True) if key != "token"]
            path = "/" + quote(
                request.path.lstrip("/")
            )  # of this server, whatever the path contains
            to = path + (f"?{urlencode(rest)}" if rest else "")
            answer = Response(status=303, headers={"Location": to})
            answer.set_cookie(COOKIE, self._token, httponly=True, samesite="Lax")
            return answer
        described = request.authorization
        bearer = described.token if described is not None and described.type == "bearer" else ""
        if not (self._knows(bearer or "") or self._knows(request.cookies.get(COOKIE, ""))):
            raise Unauthorized(
                "this server needs its token: open the address that it printed when it started, "
                "or send it as Authorization: Bearer"
            )
        return None

    def _knows(self, given_token: str) -> bool:
        return hmac.compare_digest(given_token.encode(), self._token.encode())

    def _index(self, request: Request) -> Response:
        served, view = self._fleet.served, view_of(request.args)
        found = self._fleet.ranges.view(view.words)
        return _page(index_page(served, self._state_in(found), view, found))

    def _state_in(self, found: FleetView) -> ServedState:
        """Return the state of the fleet, with the groups that are examined in a range."""
        return replace(
            self._fleet.state, n_examined=found.n_examined, n_groups=len(found.index.names)
        )

    def _group(self, request: Request) -> Response:
        served, state = self._fleet.served, self._fleet.state
        name = request.args.get("name", "")
        live, within = self._fleet.want(name), self._fleet.ranges.range_of(request.args)
        if name not in served.tables.groups and name not in live.names:
            raise NotFound("unknown group in these tables")
        doctor = served.doctor(within, [name])
        page = render(
            doctor.tables,
            f"Group {name} of {state.where}",
            [name],
            last_ms=doctor.last_ms,
            since_ms=doctor.since_ms,
            drawn_since_ms=doctor.since_ms,
            live=self._fleet.ranges.live_in(within),
            given=self._fleet.given,
            bar=bar_of(served, state, live, request.args, group=True),
            readings=served.readings(within, name),
        )
        return _page(page)

    def _api_groups(self, request: Request) -> Response:
        return _json(api.groups(self._fleet, request.args))

    def _api_group(self, request: Request, name: str) -> Response:
        """Answer about a group, or with its rows in a table, whose name follows the group's."""
        found = api.group(self._fleet, name, request.args)
        if found is None:
            group, _, table = name.rpartition("/")
            if table not in api.SHOWN or group not in self._fleet.served.tables.groups:
                raise NotFound("unknown group or table")
            found = api.rows(self._fleet, group, table, request.args)
        return _json(found)

    def _metrics(self, _: Request) -> Response:
        text = self._fleet.metrics
        if text is None:
            raise ServiceUnavailable(f"{self._wait_words()}: try again", retry_after=5)
        pieces = text if isinstance(text, str) else text.pieces()
        return Response(pieces, content_type=METRICS_TYPE)

    def _state(self, request: Request) -> Response:
        state = self._fleet.state
        if "name" not in request.args:  # the page of a group examines that group alone
            state = self._state_in(self._fleet.ranges.view(request.args))
        described = {
            "version": state.version,
            "groups": state.n_groups,
            "examined": state.n_examined,
            "failed": state.failed,
            "updater": visible(updater_text(state.updater_state)),
            "troubled": bool(state.updater_state.trouble),
        }
        return _json(described)

    def _health(self, _: Request) -> Response:
        return _plain("the server answers\n", 200)

    def _ready(self, _: Request) -> Response:
        if not self._fleet.served.number:
            raise ServiceUnavailable(f"{self._wait_words()}: try again", retry_after=5)
        return _plain("ready\n", 200)

    def _wait_words(self) -> str:
        examined = self._fleet.served.number > 0
        return "the groups are being examined" if examined else "the first read is under way"


def _check_form(request: Request) -> None:
    """Refuse a Host header that is none, and a path that no page of ours has."""
    path = str(request.environ["PATH_INFO"]).encode("latin-1").decode(errors="replace")
    if not is_host(request.environ.get("HTTP_HOST")):
        raise BadRequest("the Host header is not one host")
    is_name = path.startswith("/api/groups/")  # a group may have any name
    if not (path.isprintable() or is_name) or "\ufffd" in path:
        raise BadRequest("the path is not one of this server")


def view_of(words: Mapping[str, str]) -> IndexView:
    """Return the view of a query; a missing or wrong value is the default."""
    usual = IndexView()
    page, sort, least = (words.get(name, "") for name in ("page", "sort", "least"))
    return IndexView(
        find=words.get("find", "").strip(),
        state=words.get("state", ""),
        least=least if least in SEVERITIES else usual.least,
        sort=sort if sort in SORTS else usual.sort,
        falls=words.get("order", "down") != "up",
        page=int(page) if page.isascii() and page.isdecimal() and len(page) < 10 else usual.page,
        begin=words.get("from", ""),
        end=words.get("to", ""),
    )


def _page(page: HtmlPage) -> Response:
    headers = {"Content-Security-Policy": f"{page.policy}; frame-ancestors 'none'"}
    return Response(page, content_type="text/html; charset=utf-8", headers=headers)


def _json(document: Mapping[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(document), status, content_type="application/json")


def _plain(text: str, status: int) -> Response:
    return Response(text, status, content_type="text/plain; charset=utf-8")


def _more_headers(error: HTTPException) -> list[tuple[str, str]]:
    """Return an error's additional headers."""
    if isinstance(error, Unauthorized):
        return [("WWW-Authenticate", "Bearer")]
    own = error.get_headers()
    return [(name, value) for name, value in own if name in ("Allow", "Retry-After")]
