"""Execution of the curl lines in the documentation."""

import shlex
import urllib.request
from urllib.error import HTTPError

CurlResponse = tuple[int, str]

AS_ADMIN = (
    "as_admin=(-H 'X-Auth-Token: admin' -H 'OpenStack-API-Version: placement 1.39'"
    " -H 'Content-Type: application/json' -w '\\n%{http_code}\\n')"
)
"""The shell variable with the common options, as the documentation sets it."""


def run(line: str, url: str) -> CurlResponse:
    """Send the request of a curl line with `url` for `$api`; return the response's status and body."""
    options = AS_ADMIN.removeprefix("as_admin=(").removesuffix(")")
    _, *words = shlex.split(line.replace('"${as_admin[@]}"', options).replace("$api", url))
    method, headers, data, target = None, {}, None, ""
    while words:
        word = words.pop(0)
        match word:
            case "-X":
                method = words.pop(0)
            case "-H":
                name, value = words.pop(0).split(": ", 1)
                headers[name] = value
            case "-d":
                data = words.pop(0).encode()
            case "-w":
                words.pop(0)
            case _:
                assert not target
                target = word
    try:
        with urllib.request.urlopen(urllib.request.Request(target, data, headers, method=method)) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        with error:
            return error.code, error.read().decode()
