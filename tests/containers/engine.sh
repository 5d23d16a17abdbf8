# shellcheck shell=bash
# Which container engine runs the test hosts: sets ENGINE, and CONTAINERS_CONF for podman. Sourced by its neighbours.
PROJECT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
CACHE=$PROJECT/.cache/containers
mkdir -p "$CACHE"

die() {
  echo "test hosts: $*" >&2
  exit 1
}

install_packages() {
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get > /dev/null; then
    die "$* missing: install it, or run this as root on Debian or Ubuntu, which installs it."
  fi
  echo "test hosts: installing $*" >&2
  (
    flock 9
    if [ ! -e "$CACHE/apt-updated" ]; then
      apt-get update -q > "$CACHE/apt.log" 2>&1 || die "apt-get update failed, see $CACHE/apt.log"
      touch "$CACHE/apt-updated"
    fi
    DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends "$@" >> "$CACHE/apt.log" 2>&1 < /dev/null \
      || die "apt-get install $* failed, see $CACHE/apt.log"
  ) 9> "$CACHE/apt.lock"
}

docker_runs() { command -v docker > /dev/null && docker info > /dev/null 2>&1; }

# Podman as root needs no daemon; without root only Docker's daemon can give a container its own systemd and cgroups.
choose_engine() {
  ENGINE=${CONTAINER_ENGINE:-}
  if [ -z "$ENGINE" ]; then
    if [ "$(id -u)" -eq 0 ] && command -v podman > /dev/null; then
      ENGINE=podman
    elif docker_runs; then
      ENGINE=docker
    elif [ "$(id -u)" -eq 0 ] && command -v apt-get > /dev/null; then
      ENGINE=podman
    else
      die "no container engine: start the Docker daemon, or run this as root on Debian or Ubuntu, which installs podman."
    fi
  fi
  case $ENGINE in
    podman) prepare_podman ;;
    docker) docker_runs || die "CONTAINER_ENGINE is docker, but 'docker info' fails: start the Docker daemon." ;;
    *) die "CONTAINER_ENGINE is '$ENGINE'; it can be podman or docker." ;;
  esac
}

# Everything that podman must be told is in the project's cache; nothing in /etc is written.
prepare_podman() {
  local missing=()
  [ "$(id -u)" -eq 0 ] || die "podman runs systemd with its own cgroups only for root here: run this as root, or start the Docker daemon."
  command -v podman > /dev/null || missing+=(podman netavark)
  command -v runc > /dev/null || missing+=(runc)
  command -v iptables > /dev/null || missing+=(iptables)
  [ ${#missing[@]} -eq 0 ] || install_packages "${missing[@]}"
  export CONTAINERS_CONF=$CACHE/containers.conf
  local new
  new=$(mktemp "$CACHE/containers.conf.XXXXXX")
  cat > "$new" << CONF
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=16384:16384"]
[engine]
runtime = "runc"
[network]
network_backend = "netavark"
network_config_dir = "$CACHE/networks"
CONF
  mv "$new" "$CONTAINERS_CONF"
  podman info > /dev/null 2> "$CACHE/podman.log" || die "podman does not work: $(tail -n 1 "$CACHE/podman.log")"
}

# Podman warns of control groups that a container's cgroup file system does not have; nothing here needs them.
engine() {
  if [ "$ENGINE" = podman ]; then podman --log-level=error "$@"; else docker "$@"; fi
}
