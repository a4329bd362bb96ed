#!/bin/sh
# Succeeds if the Java that Spark would start, JAVA_HOME's or else PATH's, is version 17 or later.
# Otherwise says in one line what is wrong and how to get it.

need=17

fail() {
    echo "$1; Spark needs Java $need or later: 'apt-get install openjdk-17-jre-headless' on Debian," \
        "'brew install openjdk@17' on macOS (then set JAVA_HOME to it)" >&2
    exit 1
}

if [ -n "${JAVA_HOME:-}" ]; then
    java="$JAVA_HOME/bin/java"
    [ -x "$java" ] || fail "JAVA_HOME is $JAVA_HOME, which has no bin/java"
else
    java=$(command -v java) || fail "No Java was found in JAVA_HOME or PATH"
fi

# 'openjdk version "17.0.15" 2025-04-15', 'java version "1.8.0_292"', 'openjdk version "21-ea"'
major=$("$java" -version 2>&1 | sed -n 's/^.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*$/\2/p' | head -n 1)
[ -n "$major" ] || fail "$java does not tell its version"
[ "$major" -ge "$need" ] || fail "$java is Java $major"
