"""A request for allocation candidates: its form, its candidates, and why there are not more."""

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, g, jsonify, redirect, render_template, request, url_for
from werkzeug.exceptions import Forbidden

from placement_svc.api import links
from placement_svc.api.allocation_candidates import check_ignored_consumers, search_options
from placement_svc.api.context import reader, settings
from placement_svc.api.explanations import explain_pairs
from placement_svc.api.fits import count_pairs
from placement_svc.console.context import PROVIDER_RULES, allows, visible_parts
from placement_svc.console.labels import with_labels
from placement_svc.console.lists import page_links, with_page_size
from placement_svc.console.login import NOAUTH_TOKEN
from placement_svc.console.relaxations import relaxed
from placement_svc.console.request_form import (
    SHOWN_KEYS,
    Pairs,
    form_of,
    is_request,
    label_of,
    parse_pasted,
    split_page_keys,
    without_blanks,
)
from placement_svc.console.trees import TreeNode, order_tree
from placement_svc.db import provider_pages
from placement_svc.db.connections.engine import Transaction
from placement_svc.db.search.candidates import SearchOptions, SearchResult, find_candidates
from placement_svc.domain.combining.split_suppliers import divided
from placement_svc.domain.demands import allocations_of, mappings_of
from placement_svc.domain.errors import Invalid, NotFound
from placement_svc.domain.fits import DEFAULT_MAX, END_OF_COUNT, OTHER, find_page
from placement_svc.domain.groups import CandidatesRequest, OrderMethod
from placement_svc.domain.pages import PageRequest
from placement_svc.domain.providers import ProviderFilter
from placement_svc.domain.version_header import EXTENSIONS_HEADER
from placement_svc.domain.wording import short_reason, without_rule
from placement_svc.http.errors import status_of
from placement_svc.schemas.allocation_candidates import check_group_count, parse_request
from placement_svc.schemas.groups import BAD_RESOURCES
from placement_svc.schemas.query import check_lists, parse_pairs

bp = Blueprint("ask", __name__)

SHOWN = 20
"""The candidates that the page shows of a request without `limit`."""

MAX_SHOWN = 100

FEW = 5
"""The number of candidates below which the page explains the request, unless the limit is reached."""

_WITHOUT_QUERY = {
    BAD_RESOURCES: "Amounts have the form VCPU:1,MEMORY_MB:512.",
    "Invalid resource class in resources parameter: ": "",
}
"""Parts of errors that name the query of the API, and the texts of the page instead."""

MAX_TREE = 60
"""The providers of the largest trees that the page draws whole; of larger ones, it draws the suppliers."""


@dataclass(frozen=True)
class CandidateRow:
    """A candidate: the amounts of each supplier by class, and the suppliers of each group by suffix."""

    allocations: Mapping[str, Mapping[str, int]]
    mappings: Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Candidates:
    """The candidates that the page shows, the names of their providers, and the trees of one of them.

    There are neither names nor trees for a caller who may not list providers. If `is_random`, the same search
    finds other candidates each time.
    """

    rows: Sequence[CandidateRow]
    has_more: bool
    is_random: bool
    names: Mapping[str, str]
    drawn: int
    nodes: Sequence[TreeNode]


@bp.get("/console/ask")
def show() -> Any:
    """Show the form, and if there is a request, its candidates and its explanation."""
    sent = parse_pairs(request.query_string)
    pairs, own = split_page_keys([(key, value) for key, value in sent if value.strip()])
    root = [pair for pair in pairs if pair[0] == "root"]
    if "q" in own:
        return _take_over(own["q"], root)
    typed = [pair if pair[0] == "root" else (pair[0], without_blanks(pair[1])) for pair in pairs]
    if "add_group" in own:
        return _redirect([*typed, ("blank", own["add_group"])])
    if any(not value.strip() for _, value in sent):
        # A form sends its empty fields, and what somebody has typed in the others.
        return _redirect([*typed, *own.items()])
    try:
        check_lists(sent, settings().max_items)
        return _page(pairs, own, **(_answer(pairs, own) if pairs != root else {}))
    except (Invalid, NotFound) as error:
        return _page(pairs, own, problem=_problem(error)), status_of(error)


@bp.post("/console/ask")
def paste() -> Any:
    """Take over a pasted text.

    It is in a body because a curl command has a token: logs and histories have URLs, but no bodies.
    """
    pairs, own = split_page_keys(parse_pairs(request.get_data()))
    root = [(key, value) for key, value in pairs if key == "root" and value.strip()]
    return _take_over(own.get("q", ""), root)


def _take_over(text: str, root: Pairs) -> Any:
    """Return the redirect to the request in a pasted text, or the page that says why there is none."""
    try:
        return _redirect([*_pasted_request(text), *root])
    except Invalid as error:
        return _page(root, {"q": text}, problem=short_reason(str(error))), status_of(error)


def _problem(error: Invalid | NotFound) -> str:
    """Return the text of an error, which names the field at fault by its label."""
    text = without_rule(str(error))
    for part, instead in _WITHOUT_QUERY.items():
        text = text.replace(part, instead)
    text = with_labels(text, label_of)
    label = label_of(error.key) if isinstance(error, Invalid) else None
    return f"Invalid '{label}': {text}" if label and f"'{label}'" not in text else text


def _page(pairs: Pairs, own: Mapping[str, str], **answer: Any) -> str:
    """Return the page with the form of a request, and what `answer` has."""
    return render_template(
        "ask.html",
        pairs=pairs,
        form=form_of(pairs, own.get("blank")),
        pasted=own.get("q", ""),
        is_asked=any(key != "root" for key, _ in pairs),
        shows=visible_parts(PROVIDER_RULES),
        shows_candidates=allows("allocation_candidates:list"),
        shows_explanation=allows("allocation_candidates:explain"),
        shows_fits=allows("allocation_candidates:capacity"),
        curl=_curl(pairs),
        permanent_url=f"{links.url('console', 'ask')}?{urlencode(pairs)}",
        ask=_link_maker([*pairs, *((key, value) for key, value in own.items() if key in SHOWN_KEYS)]),
        max_claims=DEFAULT_MAX,
        limit_names={OTHER: END_OF_COUNT},
        relaxed_url=lambda relaxation: _url(relaxed(pairs, relaxation)),
        **{"candidates": None, "explanation": None, "fits": None, **answer},
    )


@bp.get("/console/code.json")
def show_code() -> Response:
    """Return the kind and the code of the explanation of a request, or why it is not valid, as a text."""
    if not allows("allocation_candidates:explain"):
        raise Forbidden("Your role may not explain requests.")
    text = dict(parse_pairs(request.query_string)).get("q", "")
    pairs = parse_pasted(text)
    try:
        check_lists(pairs, settings().max_items)
        body = explain_pairs([*pairs, ("relaxations", "0")])
    except (Invalid, NotFound) as error:
        found = without_rule(str(error))
    else:
        found = "has candidates now" if body["has_candidates"] else f"{body['kind']}: {body['code']}"
    return jsonify({"text": found})


def _pasted_request(text: str) -> Pairs:
    """Return the request in a pasted text; raise `Invalid` if it has none, or more than that."""
    pairs = parse_pasted(text)
    check_lists(pairs, settings().max_items)
    if not is_request(pairs):
        raise Invalid("The pasted text has no query such as resources=VCPU:4,MEMORY_MB:8192.")
    typed = [(key, value if key == "root" else without_blanks(value)) for key, value in pairs]
    if any(len(key.split()) > 1 or (key != "root" and len(value.split()) > 1) for key, value in typed):
        # The rest may be a header with a token, or an option of another command: it must not become a URL.
        raise Invalid(
            "The pasted text has more than a query: paste only the part such as"
            " resources=VCPU:4,MEMORY_MB:8192, its URL, or the curl command with it."
        )
    return typed


def _redirect(pairs: Pairs) -> Any:
    keys = {key for key, _ in pairs}
    # The candidates of all hosts come first on the page of a request about one host.
    fragment = "#explanation" if "root" in keys and len(keys) > 1 and "blank" not in keys else ""
    return redirect(f"{_url(pairs)}{fragment}", 303)


def _url(pairs: Pairs) -> str:
    return f"{url_for('ask.show')}?{urlencode(pairs)}" if pairs else url_for("ask.show")


def _link_maker(pairs: Pairs) -> Callable[..., str]:
    """Return a function that returns the URL of the same page with other values of some keys."""
    return lambda **changes: _url(
        [pair for pair in pairs if pair[0] not in changes]
        + [(key, str(value)) for key, value in changes.items() if value is not None]
    )


def _curl(pairs: Pairs) -> str:
    """Return the command that sends the same request to the API; a secret token is in `TOKEN`."""
    query = urlencode([pair for pair in pairs if pair[0] != "root"])
    url = f"{links.url('allocation_candidates')}?{query}"
    token = NOAUTH_TOKEN if settings().auth == "noauth" else "$TOKEN"
    return f'curl -H "X-Auth-Token: {token}" -H {shlex.quote(EXTENSIONS_HEADER)} {shlex.quote(url)}'


def _answer(pairs: Pairs, own: Mapping[str, str]) -> dict[str, Any]:
    """Return the candidates, and the explanation if there are few or if it is requested."""
    request_pairs = [pair for pair in pairs if pair[0] != "root"]
    check_group_count(request_pairs, settings().max_groups)
    parsed = parse_request(request_pairs, g.microversion, extended=True)
    check_ignored_consumers(parsed)
    limit = min(parsed.limit or SHOWN, settings().max_candidates or MAX_SHOWN, MAX_SHOWN)
    found = None
    if allows("allocation_candidates:list"):
        drawn = _drawn(own.get("candidate", "1"))
        found = reader().read(_find, parsed, limit, search_options(parsed), drawn)
    is_few = found is None or len(found.rows) < min(FEW, limit)
    explanation = None
    needs_proposals = is_few or "root" in dict(pairs)
    if (needs_proposals or "explain" in own) and allows("allocation_candidates:explain"):
        # Relaxations of amounts take half of the time: 310 ms of 570 ms with 10,000 hosts of 4 providers.
        explanation = explain_pairs(pairs if needs_proposals else [*pairs, ("relaxations", "0")])
    return {
        "candidates": found,
        "explanation": explanation,
        "may_show_more": not parsed.limit and limit == SHOWN,
        **(_fits(pairs, own) if "fits" in own and allows("allocation_candidates:capacity") else {}),
    }


def _fits(pairs: Pairs, own: Mapping[str, str]) -> dict[str, Any]:
    """Return how often the request can be claimed, and a page of the hosts."""
    marker = [("marker", own["marker"])] if "marker" in own else []
    fits, page = count_pairs([*(pair for pair in pairs if pair[0] not in ("root", "limit")), *marker])
    page = with_page_size(page)
    found = find_page(fits, page)
    return {"fits": fits, "fits_hosts": found.elements, **page_links(page, found)}


def _drawn(text: str) -> int:
    """Return the number of the candidate whose trees the page draws; raise `Invalid`."""
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:4]) <= MAX_SHOWN or len(text) > 4:
        raise Invalid(f"'candidate' must be a number from 1 to {MAX_SHOWN}.")
    return int(text)


def _find(
    connection: Transaction, wanted: CandidatesRequest, limit: int, options: SearchOptions, drawn: int
) -> Candidates:
    """Return the first candidates of a request with what the page shows of their providers."""
    wanted, options = replace(wanted, limit=limit + 1), replace(options, max_candidates=None)
    result = find_candidates(connection, wanted, options)
    candidates = list(result.candidates)
    rows, roots = [], []
    for candidate in candidates[:limit]:
        demands, ids = divided(result.demands, candidate)
        uuids = [result.trees.uuids[id_] for id_ in ids]
        rows.append(CandidateRow(allocations_of(demands, uuids), mappings_of(demands, uuids)))
        roots.append({result.trees.providers[id_][3] for id_ in ids})
    drawn = min(drawn, len(rows))
    names: dict[str, str] = {}
    nodes: list[TreeNode] = []
    shows = visible_parts(PROVIDER_RULES)
    if rows and shows["providers"]:
        named = {uuid for row in rows for uuids in row.mappings.values() for uuid in uuids}
        names = {each.provider.uuid: each.provider.name for each in _details(connection, named)}
        drawn_uuids = _tree_uuids(result, roots[drawn - 1], rows[drawn - 1])
        # The summaries of candidates have the traits too.
        include = ["traits", *(("inventories", "usages") if shows["inventories"] else ())]
        nodes = order_tree(_details(connection, drawn_uuids, include))
    return Candidates(
        rows=rows,
        has_more=len(candidates) > limit,
        is_random=_is_random(wanted, options),
        names=names,
        drawn=drawn,
        nodes=nodes,
    )


def _is_random(wanted: CandidatesRequest, options: SearchOptions) -> bool:
    """Return whether the same search finds other candidates each time."""
    if wanted.order_by is not None:
        return wanted.order_by.method is OrderMethod.RANDOM
    return options.randomize and not wanted.preferred


def _tree_uuids(result: SearchResult, root_ids: set[int], row: CandidateRow) -> set[str]:
    """Return the uuids of the providers to draw."""
    uuids = {uuid for _, uuid, _, root_id in result.trees.providers.values() if root_id in root_ids}
    if len(uuids) <= MAX_TREE:
        return uuids
    suppliers = {uuid for supplying in row.mappings.values() for uuid in supplying}
    return suppliers | {result.trees.uuids[id_] for id_ in root_ids}


def _details(connection: Transaction, uuids: set[str], include: Sequence[str] = ()) -> Any:
    wanted = ProviderFilter(uuids=frozenset(uuids))
    return provider_pages.find_page(connection, wanted, include, PageRequest()).elements
