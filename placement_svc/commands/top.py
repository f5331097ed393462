"""The command `top`."""

import click

from placement_svc.client.service_client import ServiceClient
from placement_svc.commands.listing import Listing
from placement_svc.commands.query import get, limit_option, query_command
from placement_svc.commands.report import Report, amounts, bar, percent, sentence

BAR_LENGTH = 10


@query_command("top")
@click.option("--class", "resource_class", default="VCPU", show_default=True, help="Resource class.")
@click.option(
    "--by",
    type=click.Choice(["root", "project"]),
    default="root",
    show_default=True,
    help="Rank hosts by the used part of their capacity, or projects by their usage.",
)
@limit_option
def rank(service: ServiceClient, resource_class: str, by: str, limit: int) -> Report:
    """List the fullest hosts, or the projects that hold most.

    The exit status is 1 if there are none.
    """
    if by == "project":
        return _projects(service, resource_class, limit)
    return _hosts(service, resource_class, limit)


def _hosts(service: ServiceClient, resource_class: str, limit: int) -> Report:
    body = get(service, "/capacity", group_by="root", sort_by=f"-ratio:{resource_class}", limit=limit)
    # Hosts without the class are last.
    groups = [group for group in body["groups"] if resource_class in group["resource_classes"]]
    rows = []
    bars = []
    for group in groups:
        held = group["resource_classes"][resource_class]
        used, capacity = held["used"], held["capacity"]
        host = [group["root"]["name"], group["root"]["uuid"]]
        rows.append([*host, used, capacity, held["free"]])
        bars.append(
            [*host, bar(used, capacity, BAR_LENGTH), percent(used, capacity), f"{used:,} of {capacity:,}"]
        )
    listing = Listing(("Host", "UUID", "Used", "Capacity", "Free"), rows)
    if not groups:
        nothing = sentence(f"No host has an inventory of {resource_class}.")
        return Report({"groups": groups}, listing, [nothing], is_success=False)
    table = Listing(("Host", "UUID", resource_class, "", "Used"), bars)
    return Report({"groups": groups}, listing, [table])


def _projects(service: ServiceClient, resource_class: str, limit: int) -> Report:
    body = get(service, "/projects", sort_by=f"-{resource_class}", limit=limit)
    # Projects that do not use the class are last.
    projects = [project for project in body["projects"] if project["usages"].get(resource_class)]
    headings = ("Project", "Consumers", resource_class, "All usages")
    rows = [
        [
            project["project_id"],
            project["consumers"],
            project["usages"][resource_class],
            amounts(project["usages"]),
        ]
        for project in projects
    ]
    listing = Listing(headings, rows)
    if not projects:
        nothing = sentence(f"No project uses {resource_class}.")
        return Report({"projects": projects}, listing, [nothing], is_success=False)
    return Report({"projects": projects}, listing, [listing])
