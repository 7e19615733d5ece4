#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# Binds services with nothing but curl, as a program and its person do together, and
# prints the kubeconfig that the App Cluster works with from then on.
#
#   curl.sh BACKEND CA-FILE USER PASSWORD CLUSTER-ID SERVICE...
set -eu
backend=$1 ca=$2 user=$3 password=$4 cluster=$5
shift 5

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# browse is the browser: it keeps cookies and follows redirects.
browse() { curl --silent --show-error --fail --cacert "$ca" --cookie "$dir/jar" --cookie-jar "$dir/jar" --location "$@"; }
# field prints a field of JSON, hidden those of a form as name=value, part one of a query.
field() { sed -n "s/.*\"$1\":\"\([^\"]*\)\".*/\1/p" "$2"; }
hidden() { sed -n 's/.*<input type="hidden" name="\([^"]*\)" value="\([^"]*\)".*/\1=\2/p' "$1" | sed 's/&#43;/+/g; s/&amp;/\&/g'; }
part() { sed -n "s/.*[?&]$1=\([^&]*\).*/\1/p" "$2" | tr -d '\r'; }
random() { openssl rand 32 | base64 | tr '+/' '-_' | tr -d '=\n'; }

# 1. What is this backend, and where does one log in?
curl --silent --show-error --fail --cacert "$ca" "$backend/export" >"$dir/provider"
authorize=$(field authenticatedURL "$dir/provider")
token=$(field tokenURL "$dir/provider")

# 2. The program keeps a secret and sends the person's browser off with its hash.
verifier=$(random)
challenge=$(printf %s "$verifier" | openssl dgst -sha256 -binary | base64 | tr '+/' '-_' | tr -d '=\n')
state=$(random)
back=http://127.0.0.1:1/callback
login=$(browse --output "$dir/login" --write-out '%{url_effective}' --get "$authorize" \
  --data response_type=code --data client_id=kubectl-bind --data "c=$cluster" --data-urlencode "redirect_uri=$back" \
  --data "state=$state" --data "code_challenge=$challenge" --data code_challenge_method=S256)

# 3. The person logs in at the issuer, which leads to the page of the services.
set -- $(printf -- '--data service=%s ' "$@") # by words: names of services have no spaces
{
  hidden "$dir/login"
  printf 'username=%s\npassword=%s\n' "$user" "$password"
} | sed 's/["\\]/\\&/g; s/.*/data-urlencode = "&"/' >"$dir/form"
browse --output "$dir/services" --config "$dir/form" "${login%%\?*}"

# 4. The person chooses, and the browser is sent back to the program with a code.
code=$(hidden "$dir/services")
browse --output /dev/null --dump-header "$dir/done" --data "$code" "$@" "$backend/bind"
grep -i '^refresh: 0; url=' "$dir/done" >"$dir/back"
test "$(part state "$dir/back")" = "$state"

# 5. The program gives the code and its secret for the answer.
curl --silent --show-error --fail --cacert "$ca" --output "$dir/response" "$token" \
  --data grant_type=authorization_code --data client_id=kubectl-bind --data "code=$(part code "$dir/back")" \
  --data "code_verifier=$verifier" --data-urlencode "redirect_uri=$back"
field kubeconfig "$dir/response" | base64 -d
