// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"
)

// A FieldError says which field of a kubeconfig is refused, and why. It never
// contains a value that could be secret.
type FieldError struct {
	Field  string // such as users[0].user.exec
	Reason string
}

// Error implements error.
func (e *FieldError) Error() string { return e.Field + " " + e.Reason }

const (
	maxSize  = 256 << 10
	maxToken = 16 << 10
	// minify is how people make a kubeconfig of this shape.
	minify = "kubectl config view --minify --flatten --raw"
)

// Read parses a kubeconfig of the shape that backends write: one cluster, one user
// with a token, one context with a namespace. Any other field is refused with a
// [*FieldError].
func Read(data []byte) (*Kubeconfig, error) {
	root, err := parse(data)
	if err != nil {
		return nil, err
	}
	if err := checkRoot(root); err != nil {
		return nil, err
	}
	d := &decoder{}
	ctx := d.entry(root, "contexts", "context")
	cluster := d.entry(root, "clusters", "cluster")
	user := d.entry(root, "users", "user")
	if d.err != nil {
		return nil, d.err
	}
	return read(root, ctx, cluster, user)
}

func parse(data []byte) (map[string]any, error) {
	if len(data) == 0 {
		return nil, &FieldError{"kubeconfig", "is empty"}
	}
	if len(data) > maxSize {
		return nil, &FieldError{"kubeconfig", fmt.Sprintf("has more than %d bytes", maxSize)}
	}
	var root map[string]any
	if err := yaml.UnmarshalStrict(data, &root); err != nil {
		// The parser's message may quote the token.
		return nil, &FieldError{"kubeconfig", "is not YAML with a mapping at the top and no key twice"}
	}
	return root, nil
}

func checkRoot(root map[string]any) error {
	d := &decoder{}
	d.only("", root, "apiVersion", "kind", "preferences", "clusters", "contexts", "users", "current-context")
	for field, want := range map[string]string{"apiVersion": "v1", "kind": "Config"} {
		if v := d.text("", root, field); v != "" && v != want {
			d.fail(field, "is not "+want)
		}
	}
	if p, ok := root["preferences"]; ok && !empty(p) {
		d.fail("preferences", "is not allowed")
	}
	return d.err
}

// An entry is the one element of clusters, contexts or users.
type entry struct {
	path string // such as users[0].user
	name string
	body map[string]any
}

func read(root map[string]any, ctx, cluster, user entry) (*Kubeconfig, error) {
	d := &decoder{}
	d.only(ctx.path, ctx.body, "cluster", "user", "namespace")
	d.only(cluster.path, cluster.body, "server", "certificate-authority-data", "tls-server-name", "insecure-skip-tls-verify")
	d.only(user.path, user.body, "token")
	d.same("current-context", d.text("", root, "current-context"), ctx.name)
	d.same(ctx.path+".cluster", d.text(ctx.path, ctx.body, "cluster"), cluster.name)
	d.same(ctx.path+".user", d.text(ctx.path, ctx.body, "user"), user.name)
	if skip, ok := cluster.body["insecure-skip-tls-verify"]; ok && skip != false && skip != nil {
		d.fail(cluster.path+".insecure-skip-tls-verify", "is not allowed: the server's certificate must be checked")
	}
	k := &Kubeconfig{
		Server:        d.text(cluster.path, cluster.body, "server"),
		TLSServerName: d.text(cluster.path, cluster.body, "tls-server-name"),
		Namespace:     d.text(ctx.path, ctx.body, "namespace"),
		Token:         d.text(user.path, user.body, "token"),
		CAData:        d.certificates(cluster.path, cluster.body),
	}
	d.check(cluster.path+".server", checkServer(k.Server))
	d.check(cluster.path+".tls-server-name", checkServerName(k.TLSServerName))
	d.check(ctx.path+".namespace", checkNamespace(k.Namespace))
	d.check(user.path+".token", checkToken(k.Token))
	if d.err != nil {
		return nil, d.err
	}
	return k, nil
}

// A decoder keeps the first error.
type decoder struct{ err error }

func (d *decoder) fail(field, reason string) {
	if d.err == nil {
		d.err = &FieldError{field, reason}
	}
}

func (d *decoder) check(field string, err error) {
	if err != nil {
		d.fail(field, err.Error())
	}
}

func (d *decoder) same(field, got, want string) {
	switch {
	case got == "":
		d.fail(field, "is missing")
	case got != want:
		d.fail(field, "names an entry that is not there")
	}
}

// only refuses all fields but the allowed ones. Fields without a value, which
// some programs write, mean nothing and are let pass.
func (d *decoder) only(path string, m map[string]any, allowed ...string) {
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if slices.Contains(allowed, key) || empty(m[key]) {
			continue
		}
		reason, known := refused[key]
		if !known {
			reason = "is not a field that is read here"
			key = quote(key)
		}
		d.fail(join(path, key), reason)
	}
}

// refused are the fields of a kubeconfig that a client would act on.
var refused = map[string]string{
	"exec":                    "is not allowed: it would run a program",
	"auth-provider":           "is not allowed: it would run a plugin; use a token",
	"token-file":              "is not allowed: it would read a file; put the token into token",
	"tokenFile":               "is not allowed: it would read a file; put the token into token",
	"client-certificate":      "is not allowed: it would read a file; use a token",
	"client-key":              "is not allowed: it would read a file; use a token",
	"certificate-authority":   "is not allowed: it would read a file; use certificate-authority-data",
	"proxy-url":               "is not allowed: it would send everything through a proxy",
	"as":                      "is not allowed: it would impersonate someone",
	"as-uid":                  "is not allowed: it would impersonate someone",
	"as-groups":               "is not allowed: it would impersonate someone",
	"as-user-extra":           "is not allowed: it would impersonate someone",
	"username":                "is not allowed: use a token",
	"password":                "is not allowed: use a token",
	"client-certificate-data": "is not allowed: use a token",
	"client-key-data":         "is not allowed: use a token",
}

func (d *decoder) entry(root map[string]any, list, kind string) entry {
	elements, ok := root[list].([]any)
	if !ok || len(elements) != 1 {
		d.fail(list, fmt.Sprintf("has not exactly one entry; %q writes a kubeconfig that has", minify))
		return entry{}
	}
	path := list + "[0]"
	element, ok := elements[0].(map[string]any)
	if !ok {
		d.fail(path, "is not a mapping")
		return entry{}
	}
	d.only(path, element, "name", kind)
	body, ok := element[kind].(map[string]any)
	if !ok {
		d.fail(join(path, kind), "is missing")
	}
	name := d.text(path, element, "name")
	if name == "" {
		d.fail(join(path, "name"), "is missing")
	}
	return entry{join(path, kind), name, body}
}

func (d *decoder) text(path string, m map[string]any, key string) string {
	v, ok := m[key]
	if !ok || v == nil {
		return ""
	}
	s, ok := v.(string)
	if !ok {
		d.fail(join(path, key), "is not a string")
	}
	return s
}

func (d *decoder) certificates(path string, m map[string]any) []byte {
	const key = "certificate-authority-data"
	raw := d.text(path, m, key)
	if raw == "" {
		return nil
	}
	data, err := base64.StdEncoding.DecodeString(raw)
	if err != nil {
		d.fail(join(path, key), "is not base64")
		return nil
	}
	for rest := data; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		} else if block.Type == "CERTIFICATE" {
			return data
		}
	}
	d.fail(join(path, key), "holds no PEM certificate")
	return nil
}

// checkServer tells whether raw may be the URL of an API server: https, a host,
// no credentials, no query, not link-local.
func checkServer(raw string) error {
	if raw == "" {
		return errors.New("is missing")
	}
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Opaque != "":
		return errors.New("is not a URL")
	case u.Scheme != "https":
		return errors.New("is not an https URL")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.Contains(raw, "#"):
		return errors.New("has more than a host, a port and a path")
	case strings.ContainsAny(raw, `\ `):
		return errors.New("is not a URL")
	}
	if err := checkPort(u); err != nil {
		return err
	}
	return checkHost(u.Hostname())
}

func checkPort(u *url.URL) error {
	port := u.Port()
	if port == "" {
		if strings.HasSuffix(u.Host, ":") {
			return errors.New("has an empty port")
		}
		return nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return errors.New("has a port that does not exist")
	}
	return nil
}

// numeric hosts are addresses in spellings that some resolvers understand.
var numeric = regexp.MustCompile(`(^|\.)(0[xX][0-9a-fA-F]*|[0-9]+)\.?$`)

func checkHost(host string) error {
	if addr, err := netip.ParseAddr(host); err == nil {
		return checkAddress(addr)
	}
	name := strings.ToLower(strings.TrimSuffix(host, "."))
	if numeric.MatchString(name) || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return errors.New("names a host that is neither a DNS name nor an IP address")
	}
	return nil
}

func checkServerName(name string) error {
	if name == "" || len(validation.IsDNS1123Subdomain(strings.ToLower(name))) == 0 {
		return nil
	}
	if _, err := netip.ParseAddr(name); err == nil {
		return nil
	}
	return errors.New("is not a DNS name")
}

func checkNamespace(namespace string) error {
	switch {
	case namespace == "":
		return errors.New("is missing: it has to be the tenant namespace")
	case len(validation.IsDNS1123Label(namespace)) > 0:
		return errors.New("is not the name of a namespace")
	}
	return nil
}

func checkToken(token string) error {
	if token == "" {
		return errors.New("is missing")
	}
	if len(token) > maxToken {
		return fmt.Errorf("has more than %d bytes", maxToken)
	}
	for _, b := range []byte(token) {
		if b <= ' ' || b > '~' {
			return errors.New("has characters that no token has")
		}
	}
	return nil
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case string:
		return v == ""
	case []any:
		return len(v) == 0
	case map[string]any:
		return len(v) == 0
	}
	return false
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

// quote makes a key of unknown origin fit for a message.
func quote(key string) string {
	if len(key) > 40 {
		key = key[:40]
	}
	return strconv.QuoteToASCII(key)
}
