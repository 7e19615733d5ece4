// SPDX-License-Identifier: Apache-2.0

package testissuer

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"strings"
)

const formPage = `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>Log in</title>
<style>
body { font: 1rem/1.5 system-ui, sans-serif; }
main { max-width: 22rem; margin: 15vh auto; padding: 1rem; }
label, input { display: block; width: 100%; box-sizing: border-box; font: inherit; }
input { margin: .25rem 0 1rem; padding: .5rem; }
button { font: inherit; padding: .5rem 1rem; }
</style>
</head>
<body><main>
<h1>Log in</h1>
<p>{{.Client}} asks who you are. This issuer is for tests and the demo only.</p>
{{with .Message}}<p role="alert"><strong>{{.}}</strong></p>{{end}}
<form method="post" action="{{.Action}}">
{{range $name, $values := .Request}}{{range $values}}<input type="hidden" name="{{$name}}" value="{{.}}">
{{end}}{{end}}{{if .AskCode}}<label>Code on your device <input name="user_code" autocomplete="off"></label>
{{end}}<label>User name <input name="username" autocomplete="username" autofocus></label>
<label>Password <input name="password" type="password" autocomplete="current-password"></label>
<button>Log in</button> <button name="cancel" value="yes">Cancel</button>
</form>
</main></body>
</html>
`

// writeForm shows the login form, which carries the authorization request along.
func writeForm(w http.ResponseWriter, status int, r *http.Request, message string) {
	request := url.Values{}
	for name, values := range r.Form {
		if name != "username" && name != "password" {
			request[name] = values
		}
	}
	header := w.Header()
	header.Set("Cache-Control", "no-store")
	header.Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'")
	header.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_ = template.Must(template.New("form").Parse(formPage)).Execute(w, map[string]any{
		"Client":  r.Form.Get("client_id"),
		"Action":  r.URL.Path,
		"Message": message,
		"Request": request,
		"AskCode": strings.HasSuffix(r.URL.Path, "/device") && !request.Has("user_code"),
	})
}

func s256(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v)
}

func writeError(w http.ResponseWriter, status int, code, description string) {
	writeJSON(w, status, map[string]string{"error": code, "error_description": description})
}
