#!/bin/sh
# What the container tests and `make compose` need: a running Docker, and an image to build on. Installs Docker and
# starts it where it may (root on Debian); where no registry is reachable, makes the base from Debian's packages.
# `tools/docker.sh compose` sees to compose v2, too; `quick` does where that takes seconds. Safe to repeat. One line on
# stderr and exit code 1 if it cannot: what needs no containers goes on without.
set -eu
BASE=halog-base # tests/containers/available.py looks for it
COMPOSE=v2.29.7
RUN=${HALOG_DOCKER_RUN:-/var/run} # where dockerd keeps its files
LOG=$RUN/halog-dockerd.log
say() { echo "docker: $*" >&2; }
fail() { say "$*"; exit 1; }
runs() { docker info >/dev/null 2>&1; }
is_root() { [ "$(id -u)" = 0 ]; }
has_compose() { docker compose version >/dev/null 2>&1; }

debian() { # packages
    is_root && command -v apt-get >/dev/null || fail "$* is missing: install it by hand"
    say "installing $*"
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1 ||
        { apt-get update -q >/dev/null 2>&1 && apt-get install -y -q --no-install-recommends "$@" >/dev/null 2>&1; } ||
        fail "cannot install $*"
}

forget() { # a file with the number of a process, that process's name: it was killed if that is no such process
    [ ! -f "$1" ] || [ "$(cat "/proc/$(cat "$1")/comm" 2>/dev/null)" = "$2" ] || rm -f "$1"
}

start() { # dockerd's options
    say "starting dockerd $*"
    setsid nohup dockerd "$@" >"$LOG" 2>&1 </dev/null &
    started=$!
    for _ in $(seq 60); do
        runs && return 0
        kill -0 "$started" 2>/dev/null || return 1
        sleep 0.5
    done
    kill "$started"
    wait "$started" # the next one would find its files
    return 1
}

if ! runs; then
    is_root || fail "Docker does not answer, and only root can start it"
    if ! command -v dockerd >/dev/null || ! command -v iptables >/dev/null; then debian docker.io iptables; fi
    # Another process may have the number of one that was killed: dockerd would not start beside it, or wait for it in vain.
    forget "$RUN/docker.pid" dockerd
    forget "$RUN/docker/containerd/containerd.pid" containerd
    # A sandbox may have no iptables (published ports work without, by Docker's own proxy), or no overlay file system.
    start || start --iptables=false --ip6tables=false || start --iptables=false --ip6tables=false --storage-driver=vfs ||
        fail "dockerd does not start: $(tail -n 1 "$LOG")"
fi

compose_of_debian() { # the plugin out of the first Debian whose docker-compose is v2; nothing else of that release
    command -v apt-get >/dev/null && command -v dpkg-deb >/dev/null || return 1
    got=$(mktemp -d)
    keys=/usr/share/keyrings/debian-archive-keyring.gpg
    echo "deb [signed-by=$keys] http://deb.debian.org/debian trixie main" >"$got/sources"
    mkdir -p "$got/lists/partial" "$got/cache/archives/partial" ~/.docker/cli-plugins
    set -- -q -o "Dir::Etc::sourcelist=$got/sources" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$got/lists" \
        -o "Dir::Cache=$got/cache" -o APT::Sandbox::User=
    (
        cd "$got" && timeout 45 apt-get "$@" update && timeout 45 apt-get "$@" download docker-compose &&
            dpkg-deb -x docker-compose_*.deb . && mv usr/libexec/docker/cli-plugins/docker-compose ~/.docker/cli-plugins/
    ) >/dev/null 2>&1 || { rm -rf "$got"; return 1; }
    rm -rf "$got"
    has_compose || { rm -f ~/.docker/cli-plugins/docker-compose; return 1; }
}

compose_by_go() {
    command -v go >/dev/null || fail "docker compose (v2) is missing: install docker-compose-v2 or docker-compose-plugin"
    say "building docker compose $COMPOSE (ten minutes, once)"
    made=$(mktemp -d)
    GOBIN=$made go install "github.com/docker/compose/v2/cmd@$COMPOSE" >"$made/log" 2>&1 || fail "go: $(tail -n 1 "$made/log")"
    mkdir -p ~/.docker/cli-plugins
    mv "$made/cmd" ~/.docker/cli-plugins/docker-compose
    rm -rf "$made"
}

case "${1:-}" in
    compose) has_compose || compose_of_debian || compose_by_go ;;
    quick) has_compose || compose_of_debian || say "no docker compose (v2) to be had in seconds: its tests will say so and skip" ;;
esac

has() { docker image inspect "$1" >/dev/null 2>&1; }
jre=${HALOG_JRE_IMAGE:-eclipse-temurin:17-jre}
python=${HALOG_PYTHON_IMAGE:-python:3.11-slim}
if { has "$jre" && has "$python"; } || has "$BASE"; then exit 0; fi
say "fetching $jre and $python"
if timeout 120 docker pull -q "$jre" >/dev/null 2>&1 && timeout 120 docker pull -q "$python" >/dev/null 2>&1; then exit 0; fi
is_root || fail "no registry is reachable, and only root can make a base image"
command -v debootstrap >/dev/null || debian debootstrap
say "no registry is reachable: making $BASE from Debian's packages (two minutes, once)"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
debootstrap --variant=minbase --include=openjdk-17-jre-headless,python3,python3-venv bookworm "$scratch/root" \
    >"$scratch/log" 2>&1 || fail "debootstrap: $(tail -n 1 "$scratch/log")"
rm -rf "$scratch/root/var/cache/apt/archives" "$scratch/root/var/lib/apt/lists"
tar -C "$scratch/root" -c . | docker import - "$BASE" >/dev/null
