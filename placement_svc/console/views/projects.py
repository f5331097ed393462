"""Projects with their usages."""

from flask import Blueprint, render_template

from placement_svc.api.context import reader
from placement_svc.console.context import load_form, visible_project
from placement_svc.console.lists import keep_form, page_links, with_page_size
from placement_svc.db import project_pages
from placement_svc.schemas.consumers import ProjectsQuery
from placement_svc.schemas.pages import parse_page

bp = Blueprint("projects", __name__)


@bp.get("/console/projects")
@keep_form("projects.html")
def show() -> str:
    """Show a page of the projects that have consumers."""
    query = load_form(ProjectsQuery)
    page = with_page_size(parse_page(query))
    is_allowed, project_id = visible_project("projects:list", query.get("project_id"))
    if not is_allowed:
        return render_template("refused.html", title="Projects", refused="list these projects")
    found = reader().read(project_pages.find_page, project_id, page)
    names = dict.fromkeys(name for project in found.elements for name in project.usages)
    if page.sort is not None:
        names = {page.sort.resource_class: None} | names
    return render_template(
        "projects.html",
        query=query,
        projects=found.elements,
        columns=list(names),
        own_project=project_id if project_id != query.get("project_id") else None,
        **page_links(page, found),
    )
