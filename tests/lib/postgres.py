"""A PostgreSQL server of a suite's own (tests/lib/postgres.sh), and what its databases are copied with."""

import contextlib

from suite import run, started

SERVER = """
die() { echo "$*" >&2; exit 1; }
source tests/lib/postgres.sh
trap stop_postgres EXIT
start_postgres
echo "ready $POSTGRES_PORT $(postgres_programs)"
wait "$POSTGRES_PID"
"""


class Postgres:
    def __init__(self, port, programs):
        self.port, self.programs = port, programs

    def url(self, database):
        return f"postgres://poolwright@127.0.0.1:{self.port}/{database}"

    def run(self, program, *arguments):
        done = run(f"{self.programs}/{program}", *arguments)
        if done.code != 0:
            raise RuntimeError(str(done))

    def create(self, database):
        self.run("createdb", "--maintenance-db", self.url("postgres"), database)

    def dump(self, database, file):
        self.run("pg_dump", "--format", "custom", "--file", file, "--dbname", self.url(database))

    def restore(self, file, database):
        self.create(database)
        self.run("pg_restore", "--dbname", self.url(database), "--no-owner", "--exit-on-error", file)


@contextlib.contextmanager
def served():
    with started("bash", "-c", SERVER, ready=r"^ready (\d+) (\S+)$", log="postgres-started.log") as ready:
        yield Postgres(*ready.groups())
