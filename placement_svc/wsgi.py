"""The WSGI application, for ``gunicorn placement_svc.wsgi:app``."""

from placement_svc.app import create_app

app = create_app()
