"""A scheduler on placement-svc: it spreads servers, keeps them apart, and moves them off a host.

    python examples/scheduler.py URL place 3 "resources=VCPU:2,MEMORY_MB:4096" --apart
    python examples/scheduler.py URL evacuate HOST

The service searches and claims in one transaction, so that a lost race, a half-finished claim or two servers
of a group on one host cannot happen, whatever other schedulers do at the same time. HOST is a uuid.
"""

import argparse
import json
import os
import sys
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

TOKEN = os.environ.get("PLACEMENT_TOKEN", "admin")


def call(url: str, method: str, path: str, body: Any = None) -> Any:
    """Send a request, and return the JSON of the response; exit with the error that the service names."""
    headers = {"X-Auth-Token": TOKEN, "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        request = urllib.request.Request(url + path, data, headers, method=method)
        with urllib.request.urlopen(request) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        text = error.read().decode()
        problem = {"detail": text} if error.code == 401 else json.loads(text)["errors"][0]
        sys.exit(f"{problem['detail'].strip()}\nExplained by: {problem.get('explanation') or '-'}")
    except urllib.error.URLError as error:
        sys.exit(f"The service at {url} does not respond: {error.reason}")


def place(url: str, count: int, request: str, *, apart: bool) -> Iterable[Any]:
    """Claim for `count` new servers on the hosts with most free VCPU, with `apart` on different hosts."""
    server = {"project_id": "example", "user_id": "scheduler", "consumer_type": "INSTANCE"}
    consumers = [{"uuid": str(uuid4()), **server, "consumer_generation": None} for _ in range(count)]
    body: dict[str, Any] = {"request": f"{request}&order_by=spread:VCPU", "consumers": consumers}
    if apart:
        group = body["placement_group"] = str(uuid4())
        call(url, "PUT", f"/placement_groups/{group}", {"policy": "anti-affinity"})
    yield from call(url, "POST", "/claims", body)["claims"]


def evacuate(url: str, host: str) -> Iterable[Any]:
    """Move the servers of a host to others one by one, with the same amounts; stop if one fits nowhere."""
    group_of = {}
    for group in call(url, "GET", "/placement_groups")["placement_groups"]:
        for member in call(url, "GET", f"/placement_groups/{group['uuid']}")["members"]:
            group_of[member["consumer_uuid"]] = group["uuid"]
    for server in call(url, "GET", f"/consumers?in_tree={host}&include=allocations")["consumers"]:
        amounts = Counter[str]()
        for allocation in server["allocations"].values():
            amounts.update(allocation["resources"])
        resources = ",".join(f"{name}:{amount}" for name, amount in amounts.items())
        consumer = {key: server[key] for key in ("uuid", "project_id", "user_id", "consumer_type")}
        consumer["consumer_generation"] = server["generation"]
        # Clients below microversion 1.38 cannot state a type; a claim has to.
        if consumer["consumer_type"] == "unknown":
            consumer["consumer_type"] = "INSTANCE"
        request = f"resources={resources}&in_tree=!{host}&order_by=spread:VCPU"
        body = {"request": request, "consumers": [consumer]}
        if group := group_of.get(server["uuid"]):
            body["placement_group"] = group
        yield from call(url, "POST", "/claims", body)["claims"]


def main() -> None:
    """Execute one command, and print where each server is."""
    parser = argparse.ArgumentParser(description="Place servers on hosts, or move them off a host.")
    parser.add_argument("url", help="such as http://127.0.0.1:8778")
    commands = parser.add_subparsers(dest="command", required=True)
    placing = commands.add_parser("place", help="claim for new servers")
    placing.add_argument("count", type=int)
    placing.add_argument("request", help="such as resources=VCPU:2,MEMORY_MB:4096")
    placing.add_argument("--apart", action="store_true", help="put each server on another host")
    commands.add_parser("evacuate", help="move all servers off a host").add_argument("host")
    options = parser.parse_args()
    if options.command == "place":
        claims = place(options.url, options.count, options.request, apart=options.apart)
    else:
        claims = evacuate(options.url, options.host)
    for claim in claims:
        print(claim["consumer_uuid"], claim["root"]["name"], flush=True)


if __name__ == "__main__":
    main()
