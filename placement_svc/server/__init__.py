"""The server: gunicorn, its worker class, and logging."""
