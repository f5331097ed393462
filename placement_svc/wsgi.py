"""The WSGI application, for ``gunicorn placement_svc.wsgi:app``."""

from placement_svc import config
from placement_svc.app import create_app
from placement_svc.server import logs

settings = config.from_environ()
logs.configure(settings)
app = create_app(settings)
