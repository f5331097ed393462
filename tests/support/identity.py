"""A minimal identity service: the part of the Identity API v3 with which a service validates tokens."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from flask import Flask, Response, jsonify, request
from werkzeug.serving import make_server

from tests.support.servers import run_in_thread

USERNAME, PASSWORD = "placement", "secret"
OWN_TOKEN = "token-of-the-service"

Json = dict[str, Any]


def token(*roles: str, hours: float = 1, **scope: Any) -> Json:
    """Return the data of a token that expires in `hours`; its scope is a project unless `scope` is given."""
    now = datetime.now(UTC)
    default = {"id": "default", "name": "Default"}
    return {
        "methods": ["password"],
        "user": {"id": "user-id", "name": "user", "domain": default, "password_expires_at": None},
        "audit_ids": ["audit"],
        "issued_at": (now - timedelta(hours=2)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "expires_at": (now + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "roles": [{"id": f"{role}-id", "name": role} for role in roles],
        **(scope or {"project": {"id": "own", "name": "own project", "domain": default}}),
    }


class Identity:
    """The identity service: `tokens` are the valid tokens; `failure`, if set, is the status of validations.

    `check_response`, `login_response` and `version_response`, if set, replace its other responses.
    A token that is taken out of `tokens` is revoked; `asked` has each that it was asked about, in order.
    """

    def __init__(self) -> None:
        self.tokens: dict[str, Json] = {}
        self.failure: int | None = None
        self.asked: list[str] = []
        self.check_response: Response | None = None
        self.login_response: Response | None = None
        self.version_response: Response | None = None
        self.url = ""
        self.is_running = threading.Event()
        """While it is not set, validations wait, as if the process was stopped."""
        self.is_running.set()

    def app(self) -> Flask:
        app = Flask("identity")

        @app.get("/")
        @app.get("/v3")
        @app.get("/v3/")
        def version() -> Response | tuple[Response, int]:
            if self.version_response:
                return self.version_response
            links = [{"rel": "self", "href": f"{self.url}/v3/"}]
            v3 = {"id": "v3.14", "status": "stable", "updated": "2020-04-07T00:00:00Z", "links": links}
            if request.path == "/":
                return jsonify(versions={"values": [v3]}), 300
            return jsonify(version=v3)

        @app.post("/v3/auth/tokens")
        def issue() -> Response | tuple[Response, int]:
            if self.login_response:
                return self.login_response
            user = request.json["auth"]["identity"]["password"]["user"]
            if (user["name"], user["password"]) != (USERNAME, PASSWORD):
                return self._error(401)
            endpoint = {"id": "1", "interface": "internal", "region": "R", "region_id": "R", "url": self.url}
            catalog = [{"id": "2", "type": "identity", "name": "keystone", "endpoints": [endpoint]}]
            response = jsonify(token={**token("service"), "catalog": catalog})
            response.headers["X-Subject-Token"] = OWN_TOKEN
            return response, 201

        @app.get("/v3/auth/tokens")
        def show() -> Response | tuple[Response, int]:
            subject = request.headers["X-Subject-Token"]
            self.asked.append(subject)
            self.is_running.wait()
            if self.failure:
                return self._error(self.failure)
            if self.check_response:
                return self.check_response
            if request.headers.get("X-Auth-Token") != OWN_TOKEN:
                return self._error(401)
            known = self.tokens.get(subject)
            ended = known is not None and known["expires_at"] < datetime.now(UTC).isoformat()
            if known is None or (ended and request.args.get("allow_expired") != "1"):
                return self._error(404)
            return jsonify(token=known)

        return app

    @staticmethod
    def _error(status: int) -> tuple[Response, int]:
        return jsonify(error={"code": status, "message": "No.", "title": "Error"}), status


@contextmanager
def serving(identity: Identity) -> Iterator[None]:
    """Serve `identity` at a free local port, and set its `url`."""
    server = make_server("127.0.0.1", 0, identity.app(), threaded=True)
    identity.url = f"http://127.0.0.1:{server.port}"
    with run_in_thread(server):
        yield
