"""The page that a browser gets at `/`."""

from flask import Blueprint, render_template

bp = Blueprint("landing", __name__)


@bp.get("/")
def show() -> str:
    """Link to the console and to the documentation of the API."""
    return render_template("landing.html")
