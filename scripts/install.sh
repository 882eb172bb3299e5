#!/bin/sh
# Installs inbox from the files of a release, without a compiler: sh install.sh --help. A release has this script next to its archives.
set -eu

usage() {
    cat <<'USAGE'
Installs inbox from the files of a release: program, systemd unit, shell completions. It starts nothing.

  sh install.sh [--from PLACE] [--version VERSION] [--force]

  --from PLACE         directory or https:// address with SHA256SUMS and the archives of a release
                       (default: INBOX_RELEASE, or else the directory of this script)
  --version VERSION    which release, if PLACE has several
  --prefix DIRECTORY   where to install (default: PREFIX, or else /usr/local)
  --destdir DIRECTORY  a root that is put before the prefix, for packages (default: DESTDIR)
  --config DIRECTORY   where the unit looks for inbox.toml (default: CONFIG_DIR, or else /etc/inbox)
  --force              replace a program that is running, or one of a newer version
  --help               print this text

Releases exist for Linux on amd64 and arm64. The script compares the archive with SHA256SUMS of the same place: this
finds damage, and is as trustworthy as the place itself.
USAGE
}

fail() {
    echo "install.sh: $1" >&2
    shift
    for line; do echo "  $line" >&2; done
    exit 1
}

from=${INBOX_RELEASE:-} version='' force=''
prefix=${PREFIX:-/usr/local} destdir=${DESTDIR:-} config=${CONFIG_DIR:-/etc/inbox}
while [ $# -gt 0 ]; do
    case $1 in
    --help | -h) usage; exit 0 ;;
    --force) force=yes; shift; continue ;;
    --from | --version | --prefix | --destdir | --config) ;;
    *) fail "unknown argument $1" "sh install.sh --help lists the arguments" ;;
    esac
    [ $# -ge 2 ] || fail "$1 needs a value" "sh install.sh --help lists the arguments"
    case $1 in
    --from) from=$2 ;;
    --version) version=$2 ;;
    --prefix) prefix=$2 ;;
    --destdir) destdir=$2 ;;
    --config) config=$2 ;;
    esac
    shift 2
done
for path in "$prefix" "$config"; do
    case $path in
    *[!A-Za-z0-9/._+-]*) fail "the path $path has characters that a systemd unit would misread" "use letters, digits and / . _ + -" ;;
    /*) ;;
    *) fail "the path $path is not absolute" ;;
    esac
done

system=$(uname -s)
[ "$system" = Linux ] || fail "no release is for $system" "releases exist for Linux; elsewhere, build from source: make build"
case $(uname -m) in
x86_64 | amd64) platform=linux_amd64 ;;
aarch64 | arm64) platform=linux_arm64 ;;
*) fail "no release is for Linux on $(uname -m)" "releases exist for amd64 and arm64; build from source: make build" ;;
esac

if [ -z "$from" ] && [ -f "$0" ]; then from=$(dirname "$0"); fi
: "${from:=.}"
case $from in
https://* | http://localhost[:/]* | http://127.0.0.1[:/]*) ;;
http://*) fail "$from is not encrypted" "anyone on the way could change the program: use https://" ;;
*)
    [ -f "$from/SHA256SUMS" ] ||
        fail "$from has no SHA256SUMS" "name the directory or address of a release: --from PLACE"
    ;;
esac
from=${from%/}

work=$(mktemp -d)
new=
trap 'rm -rf "$work"; [ -z "$new" ] || rm -f "$new"' EXIT
trap 'exit 1' HUP INT TERM

# fetch NAME copies a file of the release into the working directory.
fetch() {
    case $from in
    http*://*)
        if command -v curl >/dev/null; then
            curl -fsSL --proto-redir =https -o "$work/$1" "$from/$1" || fail "$from/$1 could not be downloaded"
        elif command -v wget >/dev/null; then
            wget -q -O "$work/$1" "$from/$1" || fail "$from/$1 could not be downloaded"
        else
            fail "neither curl nor wget is installed" "install one, or download the release and name its directory: --from DIRECTORY"
        fi
        ;;
    *) [ -f "$from/$1" ] || fail "$from has no $1, which its SHA256SUMS names"; cp "$from/$1" "$work/$1" ;;
    esac
}

fetch SHA256SUMS
found=$(sed -n "s/^[0-9a-f]\{64\}  inbox_\([A-Za-z0-9._-]*\)_$platform\.tar\.gz\$/\1/p" "$work/SHA256SUMS")
if [ -z "$version" ]; then
    [ -n "$found" ] || fail "$from has no archive for $platform" "its SHA256SUMS names none"
    [ "$(echo "$found" | wc -l)" -eq 1 ] || fail "$from has several versions" "choose one by --version:" "$(echo "$found" | tr '\n' ' ')"
    version=$found
fi
echo "$found" | grep -qxF -e "$version" || fail "$from has no version $version for $platform" "its versions: $(echo "$found" | tr '\n' ' ')"
name=inbox_${version}_$platform

fetch "$name.tar.gz"
grep "  $name\.tar\.gz\$" "$work/SHA256SUMS" >"$work/sum"
(cd "$work" && sha256sum -c sum >/dev/null 2>&1) ||
    fail "$name.tar.gz is not the file that SHA256SUMS describes" "it is damaged or was changed: get it again; nothing was installed"
tar -xzof "$work/$name.tar.gz" -C "$work"

bin=$destdir$prefix/bin program=$destdir$prefix/bin/inbox
if [ -e "$program" ] && [ -z "$force" ]; then
    file=$(readlink -f "$program")
    for process in /proc/[0-9]*/exe; do
        [ "$(readlink "$process" 2>/dev/null)" = "$file" ] || continue
        process=${process#/proc/}
        fail "$program is running as process ${process%/exe}" \
            "stop it first (systemctl stop inbox), or replace it below the running server by --force and restart it afterwards"
    done
    installed=$("$program" version 2>/dev/null | sed -n '1s/^inbox \([^ ]*\).*/\1/p') || installed=
    case $version,$installed in
    "$version,$version") ;;
    [0-9v]*,[0-9v]*)
        # A candidate such as 1.0.0-rc1 is older than 1.0.0.
        newest=$(printf '%s\n' "${installed#v}" "${version#v}" | sed -e s/-alpha/~alpha/ -e s/-beta/~beta/ -e s/-rc/~rc/ | sort -V | tail -n 1 | tr '~' -)
        [ "$newest" = "${version#v}" ] ||
            fail "$program is version $installed, which is newer than $version" \
                "a database of the newer version may not work with the older one (docs/upgrading.md); --force installs it nevertheless"
        ;;
    *) fail "$program is of version ${installed:-unknown}; it cannot be compared with $version" "--force replaces it" ;;
    esac
fi

units=$destdir$prefix/lib/systemd/system
bash=$destdir$prefix/share/bash-completion/completions zsh=$destdir$prefix/share/zsh/site-functions fish=$destdir$prefix/share/fish/vendor_completions.d
if ! mkdir -p "$bin" "$units" "$bash" "$zsh" "$fish" 2>"$work/problem" || [ ! -w "$bin" ]; then
    fail "$destdir$prefix cannot be written" "run this as root, or choose another directory: --prefix \$HOME/.local"
fi

# The new program replaces the old one at once, and only after it has run on this machine.
new=$bin/.inbox.new
cp "$work/$name/inbox" "$new"
chmod 755 "$new"
"$new" version >"$work/version" 2>"$work/problem" || fail "the program does not run on this machine" "$(cat "$work/problem")"
"$new" completion bash >"$bash/inbox"
"$new" completion zsh >"$zsh/_inbox"
"$new" completion fish >"$fish/inbox.fish"
sed -e "s|/usr/local/bin/inbox|$prefix/bin/inbox|" -e "s|/etc/inbox|$config|g" "$work/$name/systemd/inbox.service" >"$units/inbox.service"
chmod 644 "$bash/inbox" "$zsh/_inbox" "$fish/inbox.fish" "$units/inbox.service"
mv -f "$new" "$program"
new=

echo "Installed $(cat "$work/version") as $program"
case :$PATH: in
*":$prefix/bin:"*) command=inbox ;;
*) command=$prefix/bin/inbox; echo "$prefix/bin is not in your PATH." ;;
esac
cat <<NEXT

Next, to look around on this machine alone:
  $command demo
or in an empty directory, the second command in a second terminal:
  $command serve
  $command simulate mention --text 'What can you do?'

Next, for a server on the internet (docs/quickstart.md):
  $command init --dir $config
NEXT
