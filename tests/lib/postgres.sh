# A PostgreSQL server of the tests' own, on loopback. Sourced by suites.

# Where Debian keeps the server's programs.
postgres_programs() {
    local programs
    programs=(/usr/lib/postgresql/*/bin)
    [[ -x ${programs[-1]}/postgres ]] && echo "${programs[-1]}"
}

# PostgreSQL refuses to run as root.
as_postgres() {
    if [[ $EUID -eq 0 ]]; then runuser -u postgres -- "$@"; else "$@"; fi
}

# A certificate authority NAME-ca.pem and a server certificate NAME.pem of it, in the current folder.
make_certificates() {
    local name=$1
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "/CN=$name test authority" \
        -keyout "$name-ca.key" -out "$name-ca.pem"
    openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj "/CN=127.0.0.1" \
        -keyout "$name.key" -out "$name.csr"
    openssl x509 -req -in "$name.csr" -CA "$name-ca.pem" -CAkey "$name-ca.key" -CAcreateserial -days 2 \
        -extfile <(echo "subjectAltName=IP:127.0.0.1") -out "$name.pem"
}

# Starts a server in a folder of its own under /tmp (a socket's path must be short, and the account postgres
# must get there), with TLS offered, anybody on loopback trusted, and a superuser `poolwright`. Sets
# POSTGRES_DIR, POSTGRES_PORT and POSTGRES_PID; the caller calls stop_postgres on its way out.
start_postgres() {
    local programs log=$SUITE_DIR/postgres.log
    programs=$(postgres_programs) || die "no PostgreSQL server under /usr/lib/postgresql"
    POSTGRES_DIR=$(mktemp -d /tmp/poolwright-postgres.XXXXXX)
    (cd "$POSTGRES_DIR" && make_certificates server && make_certificates other) >"$SUITE_DIR/openssl.log" 2>&1 ||
        die "openssl could not make certificates: $SUITE_DIR/openssl.log"
    chmod 755 "$POSTGRES_DIR"
    mkdir "$POSTGRES_DIR/data"
    [[ $EUID -ne 0 ]] || chown -R postgres: "$POSTGRES_DIR"
    as_postgres "$programs/initdb" --pgdata "$POSTGRES_DIR/data" --username poolwright --auth trust --encoding UTF8 \
        --no-sync >"$SUITE_DIR/initdb.log" 2>&1 || die "initdb failed: $SUITE_DIR/initdb.log"
    # Who is in the role `guarded` has a password to tell.
    sed -i '1i host all +guarded 127.0.0.1/32 scram-sha-256' "$POSTGRES_DIR/data/pg_hba.conf"
    : >"$log"
    POSTGRES_PORT=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    # setpriv ends the server when this shell ends, however it ends; on INT it does not wait for its clients.
    setpriv --pdeathsig INT "$(command -v bash)" -c 'exec "$@"' start $(postgres_command "$programs") >>"$log" 2>&1 &
    POSTGRES_PID=$!
    local tries
    for ((tries = 0; tries < 300; tries++)); do
        if "$programs/pg_isready" --quiet --host 127.0.0.1 --port "$POSTGRES_PORT"; then
            # Superusers are in every role, for the server's own rules too: `poolwright` must not be in this one.
            "$programs/psql" --quiet --host 127.0.0.1 --port "$POSTGRES_PORT" --username poolwright postgres \
                --command 'CREATE ROLE guarded' && return
        fi
        kill -0 "$POSTGRES_PID" 2>/dev/null || break
        sleep 0.1
    done
    tail -n 20 "$log" >&2
    die "PostgreSQL did not start: $log"
}

postgres_command() {
    [[ $EUID -ne 0 ]] || echo setpriv --reuid postgres --regid postgres --init-groups --pdeathsig INT
    echo "$1/postgres" -D "$POSTGRES_DIR/data" -c "listen_addresses=127.0.0.1" -c "port=$POSTGRES_PORT" \
        -c "unix_socket_directories=$POSTGRES_DIR" -c max_connections=200 -c ssl=on \
        -c "ssl_cert_file=$POSTGRES_DIR/server.pem" -c "ssl_key_file=$POSTGRES_DIR/server.key"
}

stop_postgres() {
    [[ -n ${POSTGRES_PID-} ]] && kill -INT "$POSTGRES_PID" 2>/dev/null && wait "$POSTGRES_PID"
    [[ -n ${POSTGRES_DIR-} ]] && rm -rf "$POSTGRES_DIR"
    return 0
}
