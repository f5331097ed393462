"""The command `audit`."""

import click

from placement_svc import audit_report, standard_output
from placement_svc.commands.database import opened_database
from placement_svc.db.audit import audit


@click.command("audit")
@click.option("--fix", is_flag=True, help="Repair what can be repaired without loss of data.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@click.pass_context
def audit_data(context: click.Context, fix: bool, as_json: bool) -> None:
    """Check the database for inconsistent data.

    The exit status is 1 if any is found. With --fix, it is 1 if any is left. What Placement
    permits, such as rows that nothing refers to, is a notice, and does not count.
    """
    with opened_database() as database:
        findings = database.write(audit.fix) if fix else database.read(audit.find)
    with standard_output.reported("The repair is complete." if fix else ""):
        click.echo(audit_report.as_json(findings) if as_json else audit_report.as_text(findings, fix=fix))
    if any(map(audit_report.is_wrong, findings)):
        context.exit(1)
