// SPDX-License-Identifier: Apache-2.0

package testplatform

import (
	"net/http"
	"slices"
	"strings"
)

// A Match names requests.
type Match func(*http.Request) bool

// All is every request.
func All(*http.Request) bool { return true }

// Path is the requests whose path ends so.
func Path(suffix string) Match {
	return func(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, suffix) }
}

// List is the lists of a resource, such as "apiserviceexports", but no watches.
func List(resource string) Match { return verb("list", resource) }

// Watch is the watches of a resource, streamed lists among them.
func Watch(resource string) Match { return verb("watch", resource) }

// Read is the lists and watches of a resource.
func Read(resource string) Match { return Any(List(resource), Watch(resource)) }

// Get is the reads of a single object of a resource.
func Get(resource string) Match { return verb("get", resource) }

// Write is what changes a resource.
func Write(resource string) Match { return verb("write", resource) }

// Any is what one of matches names.
func Any(matches ...Match) Match {
	return func(r *http.Request) bool {
		return slices.ContainsFunc(matches, func(m Match) bool { return m(r) })
	}
}

func verb(want, resource string) Match {
	return func(r *http.Request) bool {
		a := addressOf(r.URL.Path)
		return a.resource == resource && verbOf(r, a) == want
	}
}

func verbOf(r *http.Request, a address) string {
	switch watching := r.URL.Query().Get("watch"); {
	case r.Method != http.MethodGet:
		return "write"
	case watching == "true" || watching == "1":
		return "watch"
	case a.name == "":
		return "list"
	default:
		return "get"
	}
}

// An address is what the path of a request to an API server says.
type address struct{ groupVersion, namespace, resource, name, subresource string }

func addressOf(path string) (a address) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		a.groupVersion, parts = parts[1], parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		a.groupVersion, parts = parts[1]+"/"+parts[2], parts[3:]
	default:
		return a
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		a.namespace, parts = parts[1], parts[2:]
	}
	for i, into := range []*string{&a.resource, &a.name, &a.subresource} {
		if i < len(parts) {
			*into = parts[i]
		}
	}
	return a
}
