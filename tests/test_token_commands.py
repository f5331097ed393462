"""The commands `placement-svc token`: create, list and revoke."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from placement_svc.cli import main
from placement_svc.http import token_file
from tests.support.terminal import on_terminal


@pytest.fixture
def tokens(tmp_path: Path) -> Path:
    return tmp_path / "tokens.json"


def run(file: Path, *arguments: str, **env: str) -> Result:
    return CliRunner().invoke(main, ["token", *arguments], env={"PLACEMENT_TOKEN_FILE": str(file)} | env)


def create(
    file: Path, *options: str, user: str = "u", project: str = "p", role: str = "service", **env: str
) -> Result:
    return run(file, "create", "--user", user, "--project", project, "--role", role, *options, **env)


def listed(file: Path) -> list[dict[str, object]]:
    result = run(file, "list", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    documents: list[dict[str, object]] = json.loads(result.stdout)
    return documents


@pytest.mark.parametrize("option", ["user", "project", "role"])
@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("", "must not be blank"),
        ("  ", "must not be blank"),
        ("\t", "must not be blank"),
        ("a\nb", "must not contain control characters"),
        ("a\x1b[31m", "must not contain control characters"),
        ("a\x00", "must not contain control characters"),
        ("\u202ea", "must not contain control characters"),
    ],
)
def test_blank_and_unprintable_names_are_refused(tokens: Path, option: str, value: str, why: str) -> None:
    result = create(tokens, **{option: value})
    assert result.exit_code == 2
    assert why in result.stderr
    assert f"--{option}" in result.stderr
    assert not tokens.exists()


@pytest.mark.parametrize("role", ["admin", "Service", "reader"])
def test_role_of_the_policy_is_accepted_without_a_warning(tokens: Path, role: str) -> None:
    result = create(tokens, role=role)
    assert (result.exit_code, result.stderr) == (0, "")


def test_unknown_role_is_reported(tokens: Path, tmp_path: Path) -> None:
    result = create(tokens, "--role", "reader", role="monitoring")
    assert result.exit_code == 0
    assert result.stderr == "Warning: No policy rule names the role monitoring\n"
    assert listed(tokens)[0]["roles"] == ["monitoring", "reader"]
    policy = tmp_path / "policy.yaml"
    policy.write_text('"placement:traits:list": "role:monitoring"\n')
    assert create(tokens, role="monitoring", PLACEMENT_POLICY_FILE=str(policy)).stderr == ""


@pytest.mark.parametrize(
    ("text", "period"),
    [
        ("30m", timedelta(minutes=30)),
        ("12h", timedelta(hours=12)),
        ("90d", timedelta(days=90)),
        ("2w", timedelta(weeks=2)),
    ],
)
def test_token_expires_after_a_period(tokens: Path, text: str, period: timedelta) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    assert create(tokens, "--expires", text).exit_code == 0
    [record] = token_file.read(tokens).values()
    assert record.expires_at is not None
    assert before + period <= record.expires_at <= datetime.now(UTC) + period


@pytest.mark.parametrize(
    ("text", "expires_at"),
    [
        ("2099-12-31", "2099-12-31T00:00:00+00:00"),
        ("2099-12-31T12:30", "2099-12-31T12:30:00+00:00"),
        ("2099-12-31T12:30:00+02:00", "2099-12-31T10:30:00+00:00"),
        ("2099-12-31T12:30:00Z", "2099-12-31T12:30:00+00:00"),
    ],
)
def test_token_expires_on_a_date(tokens: Path, text: str, expires_at: str) -> None:
    assert create(tokens, "--expires", text).exit_code == 0
    assert listed(tokens)[0]["expires_at"] == expires_at


@pytest.mark.parametrize(
    ("text", "why"),
    [
        *(
            (text, "is neither a period")
            for text in ("", "90", "d", "-1d", "1.5d", "90D", "90 d", "1y", "soon")
        ),
        *((text, "is neither a period") for text in ("9" * 5000 + "w", "2099-13-01", "\u0663d")),
        *((text, "is after the year 9999") for text in ("999999999d", "9999-12-31T23:59:59-23:59")),
        *((text, "is not in the future") for text in ("0d", "2020-01-01", "0001-01-01")),
    ],
)
def test_invalid_expiry_is_refused(tokens: Path, text: str, why: str) -> None:
    result = create(tokens, "--expires", text)
    assert result.exit_code == 2
    assert why in " ".join(result.stderr.split())
    assert not tokens.exists()


def test_list_is_a_table_that_marks_expired_tokens(tokens: Path) -> None:
    past = datetime(2026, 1, 1, tzinfo=UTC)
    made = [
        token_file.add(tokens, "scheduler", "services", ["service", "reader"]),
        token_file.add(tokens, "[bold]old[/bold]" + "x" * 100, "services", ["service"], past),
        create(tokens, "--expires", "90d").stdout.strip(),
    ]
    result = run(tokens, "list")
    assert (result.exit_code, result.stderr) == (0, "")
    for name in ("Id", "User", "Project", "Roles", "Created", "Expires"):
        assert name in result.stdout
    rows = {
        token.split(".")[0]: [cell.strip() for cell in line.strip("│┃ ").split("│")]
        for token in made
        for line in result.stdout.splitlines()
        if token.split(".")[0] in line
    }
    first, second, third = rows.values()
    assert first[1:4] == ["scheduler", "services", "service, reader"]
    assert first[5] == "never"
    assert second[1] == "[bold]old[/bold]" + "x" * 100
    assert second[5] == "2026-01-01T00:00:00+00:00 (expired)"
    assert "expired" not in third[5]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_nothing_in_a_list_is_cut_on_a_terminal(tokens: Path, columns: int) -> None:
    for user in ("nova-compute@example", "nova-compute@example.org"):
        token_file.add(tokens, user, "0123456789abcdef0123456789abcdef", ["service"])
    shown = on_terminal("token", "list", columns=columns, PLACEMENT_TOKEN_FILE=str(tokens))
    assert "…" not in shown
    for document in listed(tokens):
        assert str(document["id"]) in shown
        assert str(document["project_id"]) in shown


def test_list_shows_names_as_they_are(tokens: Path) -> None:
    token_file.add(tokens, ":key:", "a:lock:b", [":smile:"])
    shown = run(tokens, "list").stdout
    assert all(name in shown for name in (":key:", "a:lock:b", ":smile:"))


def test_json_list_has_all_but_the_secrets(tokens: Path) -> None:
    past = datetime(2026, 1, 1, tzinfo=UTC)
    token_id, secret = token_file.add(tokens, "u", "p", ["service"], past).split(".")
    [document] = listed(tokens)
    assert document == {
        "id": token_id,
        "user_id": "u",
        "project_id": "p",
        "roles": ["service"],
        "created_at": document["created_at"],
        "expires_at": "2026-01-01T00:00:00+00:00",
        "expired": True,
    }
    record = json.loads(tokens.read_text())[token_id]
    for output in (run(tokens, "list").output, run(tokens, "list", "--json").output):
        for hidden in (secret, record["salt"], record["hash"]):
            assert hidden not in output


@pytest.mark.parametrize("whole", [False, True])
def test_revoke_says_whose_token_it_revoked(tokens: Path, whole: bool) -> None:
    token = create(tokens, user="scheduler", project="services").stdout.strip()
    token_id = token.split(".")[0]
    result = run(tokens, "revoke", token if whole else token_id)
    assert result.exit_code == 0
    assert result.output == f"Revoked 1 token: {token_id} of the user scheduler in the project services\n"
    assert listed(tokens) == []


def test_revocation_of_an_unknown_token_fails_without_its_secret(tokens: Path) -> None:
    create(tokens)
    result = run(tokens, "revoke", "00000000.secret")
    assert result.exit_code == 1
    assert result.output == f"Error: The token file {tokens} has no token 00000000\n"
    assert len(listed(tokens)) == 1
