# Installs what the tests need beside Rust: Debian packages, and Python tools in .venv. Quick when they are
# there already. Sourced by tests/run; needs the root of the checkout as working directory.

# A command that must be there, and the Debian package that has it.
PEER_COMMANDS=(
    "c++:g++"
    "cc:gcc libc6-dev"
    "cmake:cmake make"
    "curl:curl ca-certificates"
    "git:git"
    "jq:jq"
    "busybox:busybox-static"
    "cpio:cpio"
    "qemu-system-x86_64:qemu-system-x86"
    "nginx:nginx-light"
    "openssl:openssl"
    "strip:binutils"
    "tar:tar"
)

# One run at a time in a checkout: another one would install and build under this one. The lock ends with this process and
# with what it started.
take_lock() {
    mkdir -p reports && exec 9>>reports/.lock || die "reports/ can't be written: is the disk full?"
    # Steps of a killed run take up to 30 s to end.
    local other="another run, $(<reports/.lock), uses this checkout"
    flock --nonblock 9 || { echo "$other: waiting up to 60 s for its end" >&2 && flock --timeout 60 9; } ||
        die "$other: wait for it, or end it (kill PID); if it is gone, fuser reports/.lock shows what it left"
    echo "PID $$ since $(date +%H:%M)" >reports/.lock
}

# Everything that is missing, as Debian package names.
missing_packages() {
    local entry
    for entry in "${PEER_COMMANDS[@]}"; do
        command -v "${entry%%:*}" >/dev/null || echo "${entry#*:}"
    done
    ls /usr/lib/postgresql/*/bin/postgres >/dev/null 2>&1 || echo postgresql
    ls /usr/lib/llvm-*/lib/libclang*.so >/dev/null 2>&1 || echo libclang-dev
    python3 -c 'import ensurepip, venv' 2>/dev/null || echo python3 python3-venv
}

as_root() {
    if [[ $EUID -eq 0 ]]; then "$@"; else sudo -n "$@"; fi
}

# While this file is there, no package starts its server.
POLICY=/usr/sbin/policy-rc.d
OUR_POLICY=$'#!/bin/sh\n# By tests/run, while it installs packages.\nexit 101'

remove_policy() {
    if [[ -e $POLICY && $(<"$POLICY") == "$OUR_POLICY" ]]; then as_root rm -f "$POLICY"; fi
}

# Installs without recommends, and without letting a package start its server.
install_packages() {
    local status=0
    if [[ ! -e $POLICY ]]; then
        echo "$OUR_POLICY" | as_root tee "$POLICY" >/dev/null
        as_root chmod 755 "$POLICY"
    fi
    # A cluster for everybody is not wanted, nor the time that it takes.
    if [[ ! -e /etc/postgresql-common/createcluster.conf ]]; then
        as_root mkdir -p /etc/postgresql-common
        echo 'create_main_cluster = false' | as_root tee /etc/postgresql-common/createcluster.conf >/dev/null
    fi
    as_root apt-get update -qq &&
        as_root env DEBIAN_FRONTEND=noninteractive \
            apt-get install -qq -y --no-install-recommends "$@" >/dev/null || status=$?
    remove_policy
    return "$status"
}

install_peers() {
    PATH=$PATH:/usr/sbin:/sbin # where Debian keeps nginx; not in everybody's PATH
    command -v cargo >/dev/null || die "cargo is missing: install Rust (https://rustup.rs)"
    remove_policy # of a run that was killed

    local packages
    mapfile -t packages < <(missing_packages | tr ' ' '\n' | sort -u)
    if ((${#packages[@]})); then
        command -v apt-get >/dev/null ||
            die "missing, and there is no apt-get to install it: ${packages[*]} (names of Debian packages)"
        echo "installing ${packages[*]}" >&2
        install_packages "${packages[@]}" ||
            die "apt-get could not install, as root or with sudo without a password: ${packages[*]}"
    fi

    install_nextest
    install_python_tools
    unpack_kernel
}

# The test runner for the tests in Rust; .config/nextest.toml has the oldest release that will do.
install_nextest() {
    command -v cargo-nextest >/dev/null && return
    echo "installing cargo-nextest (a build of some minutes)" >&2
    setpriv --pdeathsig TERM cargo install --quiet --locked cargo-nextest@0.9.143 --no-default-features --features default-no-update ||
        die "cargo could not install cargo-nextest"
    PATH=$PATH:${CARGO_HOME:-$HOME/.cargo}/bin
}

# A kernel for guests: Debian's, unpacked and not installed.
unpack_kernel() {
    local folder=target/guests package
    compgen -G "$folder/boot/vmlinuz-*" >/dev/null && return
    echo "unpacking a kernel for guests into $folder" >&2
    # Under another name until it is whole: a killed run leaves nothing that looks complete.
    local new=$folder.new
    package=$(kernel_package) || { as_root apt-get update -qq && package=$(kernel_package); } ||
        die "apt-get has no package linux-image-cloud-amd64: the guests need that of Debian on x86-64"
    rm -rf "$folder" "$new" && mkdir -p "$new" &&
        (cd "$new" && apt-get download -qq "$package" && dpkg -x ./*.deb . && rm ./*.deb) && mv "$new" "$folder" ||
        die "the kernel $package could not be unpacked into $folder"
}

kernel_package() { apt-cache depends linux-image-cloud-amd64 2>/dev/null | sed -n 's/.*Depends: \(linux-image-[0-9]\)/\1/p' | grep .; }

# Puts the pinned Python tools of the tests into .venv, anew whenever the pins change.
install_python_tools() {
    python_tools_are_current tests && .venv/bin/python -c '' && return
    rm -rf .venv
    python3 -m venv .venv || die "Python could not make .venv"
    install_requirements tests
}

# The peers of the benchmarks, too: they are large.
install_benchmark_tools() {
    install_python_tools
    python_tools_are_current tests/bench || install_requirements tests/bench
}

python_tools_are_current() {
    [[ -f .venv/${1//\//-}.pins && $(<".venv/${1//\//-}.pins") == "$(python_pins "$1")" ]]
}

python_pins() { cat "$1/requirements.txt" tests/constraints.txt | sha256sum; }

install_requirements() {
    echo "installing the Python tools of $1/requirements.txt into .venv" >&2
    setpriv --pdeathsig TERM .venv/bin/python -m pip install --quiet --no-compile --disable-pip-version-check \
        --requirement "$1/requirements.txt" --constraint tests/constraints.txt ||
        die "the Python tools of $1/requirements.txt could not be installed into .venv"
    python_pins "$1" >".venv/${1//\//-}.pins"
}
