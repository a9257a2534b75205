# Debian's packages, without installing them: a part of servers.sh and clients.sh. They say what it is all for (NAME), in which folder
# to work (TMP), and how to end with a message (die).

# The system's own entry for the Debian mirror, rewritten for the suites in "$@". Taking the entry as it is keeps
# whatever the machine needs to reach and to trust its mirror. The file is named sources.list or x.sources, by which
# apt knows its format; its path is printed. KIND is deb for packages, deb-src for sources.
mirror_entry() {
    local dir=$1 codename list parts kind=${KIND:-deb} targets=Packages
    [ "$kind" = deb ] || targets=Sources
    shift
    codename=$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")
    [ -n "$codename" ] || return 1
    eval "$(apt-config shell list Dir::Etc::sourcelist/f parts Dir::Etc::sourceparts/d)"

    # deb822 files: the first stanza for exactly this suite (so not its security updates) with Debian in its address.
    cat "$parts"/*.sources 2>/dev/null | grep -v '^#' | awk -v RS= -v suites="$*" -v codename="$codename" -v kind="$kind" -v targets="$targets" '
        function has(line, word,    n, w, i) { n = split(line, w, " "); for (i = 1; i <= n; i++) if (w[i] == word) return 1; return 0 }
        {
            ours = 0; debian = 0; off = 0; out = "Types: " kind "\nTargets: " targets "\nSuites: " suites "\nComponents: main\n"; skip = 0
            n = split($0, line, "\n")
            for (i = 1; i <= n; i++) {
                name = tolower(line[i]); sub(/:.*/, "", name)
                if (line[i] !~ /^[ \t]/) field = name
                if (field == "suites") ours = ours || has(line[i], codename)
                if (field == "uris" && line[i] ~ /debian/) debian = 1
                if (field == "enabled" && line[i] ~ /no/) off = 1
                if (field !~ /^(types|suites|components|targets|enabled)$/) out = out line[i] "\n"
            }
            if (ours && debian && !off) { printf "%s", out; exit }
        }' > "$dir/mirror.sources"
    [ -s "$dir/mirror.sources" ] && { printf '%s' "$dir/mirror.sources"; return; }

    # one-line files: "deb [options] address suite component ..."
    cat "$list" "$parts"/*.list 2>/dev/null | awk -v suites="$*" -v codename="$codename" -v kind="$kind" -v targets="$targets" '
        /^deb[ \t]/ {
            options = ""; rest = $0; sub(/^deb[ \t]+/, "", rest)
            if (match(rest, /^\[[^]]*\]/)) { options = substr(rest, 2, RLENGTH - 2); rest = substr(rest, RLENGTH + 1) }
            split(rest, word, " ")
            if (word[1] !~ /debian/ || word[2] != codename) next
            n = split(suites, suite, " ")
            for (i = 1; i <= n; i++) print kind " [target=" targets " " options "] " word[1] " " suite[i] " main"
            exit
        }' > "$dir/sources.list"
    [ -s "$dir/sources.list" ] && printf '%s' "$dir/sources.list"
}

# ask_apt SUITE...: an apt of our own, that knows these suites and believes that nothing is installed; `options` are its.
ask_apt() {
    local apt=$TMP/apt entry
    rm -rf "$apt"
    mkdir -p "$apt/lists/partial" "$apt/archives/partial"
    : > "$apt/status"
    entry=$(mirror_entry "$apt" "$@") || die "$NAME: found no Debian mirror among the system's apt sources"
    options=(-qq -o Dir::Etc::sourcelist="$entry" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::State="$apt" -o Dir::State::lists="$apt/lists" -o Dir::State::status="$apt/status"
        -o Dir::Cache="$apt" -o Dir::Cache::archives="$apt/archives"
        -o APT::Sandbox::User=root -o Debug::NoLocking=1
        -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false) # a mirror that stands still is as good; signatures are checked all the same
    apt-get "${options[@]}" update >&2 || die "$NAME: apt could not read the suites $* from the system's Debian mirror"
}

# debian FOLDER PACKAGES SUITE...: PACKAGES (one, or several in one word) and all that they depend on, unpacked into FOLDER.
# To an apt that believes that nothing is installed, "download what you would install" is the whole closure: so the
# names of the libraries need not be known here, and may change.
debian() {
    local to=$1 packages=$2 deb options
    shift 2
    mkdir -p "$to"
    ask_apt "$@"
    # shellcheck disable=SC2086 # several packages in one word
    apt-get "${options[@]}" -y --no-install-recommends --download-only install $packages >&2 </dev/null \
        || die "$NAME: apt could not download $packages of $* from the system's Debian mirror"
    for deb in "$TMP"/apt/archives/*.deb; do
        dpkg-deb -x "$deb" "$to"
    done
}
