#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Proves that a fresh clone works on a bare Debian 12: makes one with debootstrap, clones HEAD and the
# golden data into it, and times tools/setup.sh and one make target there.
#   tools/clean_room.sh DIR [TARGET...]      (default target: test)
# DIR must not exist, or be one that this script made (then only the clone is renewed). Needs root and
# debootstrap. Mirrors, proxies and certificates are taken from this machine's own configuration.
set -euo pipefail

if (($# < 1)); then
  sed -n '3,7s/^# \{0,1\}//p' "$0" >&2
  exit 2
fi
repo=$(cd "$(dirname "$0")/.." && pwd)
root=$(realpath -m "$1")
shift
targets=("${@:-test}")
golden=${RIFT_GOLDEN:-$repo/../shared/golden}
suite=bookworm

for tool in debootstrap git unshare; do
  command -v "$tool" >/dev/null || { echo "clean_room: install $tool first" >&2; exit 1; }
done
((EUID == 0)) || { echo "clean_room: needs root (chroot, mount)" >&2; exit 1; }
[[ -d $golden ]] || { echo "clean_room: no golden data at $golden (set RIFT_GOLDEN)" >&2; exit 1; }

# timed TEXT COMMAND...: runs the command and says how long it took.
timed() {
  local text=$1 start=$SECONDS
  shift
  echo "clean_room: $text ..."
  "$@"
  echo "clean_room: $text: $((SECONDS - start)) s"
}

# sources: this machine's own Debian archives as sources.list lines.
sources() {
  # shellcheck disable=SC2016 # $(...) is apt's own format syntax.
  apt-get indextargets --format 'deb $(REPO_URI) $(CODENAME) main' 'Created-By: Packages' |
    grep -E " $suite(-updates|-security)? main$" | sort -u
}

if [[ -e $root && ! -e $root/.clean_room ]]; then
  echo "clean_room: $root exists and was not made by this script" >&2
  exit 1
fi
if [[ ! -e $root ]]; then
  mirror=$(sources | awk -v suite="$suite" '$3 == suite { print $2; exit }')
  [[ -n $mirror ]] || { echo "clean_room: apt knows no archive of $suite; run apt-get update" >&2; exit 1; }
  mkdir -p "$root"
  timed "base system" debootstrap --variant=minbase "$suite" "$root" "$mirror" >"$root.log" 2>&1 ||
    { tail -20 "$root.log" >&2; exit 1; }
  touch "$root/.clean_room"
fi

# What this machine needs to reach its registries.
sources >"$root/etc/apt/sources.list"
apt-config dump Acquire | grep -v 'Acquire::cdrom' >"$root/etc/apt/apt.conf.d/90clean-room" || true
mkdir -p "$root/etc/ssl/certs" "$root/usr/local/share/ca-certificates"
for path in /etc/resolv.conf /etc/hosts /etc/pip.conf /etc/ssl/certs/ca-certificates.crt; do
  if [[ -e $path ]]; then cp -L "$path" "$root$path"; fi
done
cp -L /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/" 2>/dev/null || true

rm -rf "$root/srv/rift" "$root/srv/shared"
mkdir -p "$root/srv/shared"
git clone --quiet --no-hardlinks "$repo" "$root/srv/rift"
cp -r "$golden" "$root/srv/shared/golden"

environment=(HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 TERM=dumb)
while IFS= read -r line; do environment+=("$line"); done < <(env | grep -E \
  '^(PIP_[A-Z_]+|SSL_CERT_(FILE|DIR)|(REQUESTS|CURL)_CA_BUNDLE|(https?|HTTPS?|no|NO)_(proxy|PROXY))=')

# inside COMMAND...: runs in the clean root; the mounts end with the command.
inside() {
  # shellcheck disable=SC2016 # Expanded by the inner shell.
  unshare --mount --pid --fork bash -c '
    set -e
    root=$1; shift
    mount --make-rprivate /
    mount -t proc proc "$root/proc"
    mount --rbind /dev "$root/dev"
    mount -t sysfs sysfs "$root/sys"
    exec chroot "$root" "$@"' inside "$root" \
    env -i "${environment[@]}" bash -c 'cd /srv/rift && exec "$@"' run "$@" </dev/null
}

timed "tools/setup.sh" inside tools/setup.sh
for target in "${targets[@]}"; do
  timed "make $target" inside make "$target"
done
