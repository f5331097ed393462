"""The routes of the application: which methods a path has, and which of them are extensions."""

from functools import cached_property

from flask import Flask, request
from werkzeug.exceptions import MethodNotAllowed
from werkzeug.routing import Rule

from placement_svc.http.endpoint import get_info


class MethodRule(Rule):
    """A route that supports only the methods it names: GET does not imply HEAD."""

    def __init__(self, string: str, *, methods: list[str] | None = None, **options: object) -> None:
        super().__init__(string, methods=methods, **options)  # type: ignore[arg-type]
        if self.methods:
            self.methods.discard("HEAD")


class Routes:
    """The routes of an application, in the order of their declaration, by path."""

    def __init__(self, app: Flask) -> None:
        self._app = app

    @cached_property
    def _by_path(self) -> dict[str, list[tuple[str, bool]]]:
        """The methods of each path, and whether each is an extension."""
        methods: dict[str, list[tuple[str, bool]]] = {}
        for rule in self._app.url_map.iter_rules():
            info = get_info(self._app.view_functions[rule.endpoint])
            is_extension = info is not None and info.is_extension
            methods.setdefault(rule.rule, []).extend(
                (method, is_extension) for method in sorted(rule.methods or ())
            )
        return methods

    def current_path(self) -> str | None:
        """Return the path of the current request as its routes declare it; None if no route has it."""
        if request.url_rule is not None:
            return request.url_rule.rule
        error = request.routing_exception
        if isinstance(error, MethodNotAllowed) and error.valid_methods:
            adapter = self._app.create_url_adapter(request)
            assert adapter is not None
            rule, _ = adapter.match(method=next(iter(error.valid_methods)), return_rule=True)
            return rule.rule
        return None

    def are_all_extensions(self, path: str | None) -> bool:
        """Return whether the path exists, and Placement has none of its methods."""
        return path is not None and all(is_extension for _, is_extension in self._by_path[path])

    def methods(self, path: str, *, with_extensions: bool) -> list[str]:
        """Return the methods of a path."""
        return [method for method, is_extension in self._by_path[path] if with_extensions or not is_extension]
