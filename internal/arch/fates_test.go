// SPDX-License-Identifier: Apache-2.0

package arch

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestOneTableOfFates: what an answer of an API server says, and whether there was one, is read in
// internal/fates alone.
func TestOneTableOfFates(t *testing.T) {
	looked, unread, uncoded, unmade := 0, maps.Clone(notOfAPIServers), maps.Clone(codesOfOthers), maps.Clone(makeErrors)
	for _, p := range list(t) {
		if !asksFates(p.path()) {
			continue
		}
		looked++
		for _, name := range p.GoFiles {
			source, err := os.ReadFile(filepath.Join(p.Dir, name))
			if err != nil {
				t.Fatal(err)
			}
			file := p.path() + "/" + name
			for _, rule := range []struct {
				what    string
				found   []string
				allowed map[string]string
				unused  map[string]string
			}{
				{"reads the text of an error", readsErrors(string(source)), notOfAPIServers, unread},
				{"looks at an answer, or at the lack of one", readsCodes(string(source)), codesOfOthers, uncoded},
				{"imports what looks at API errors", errorsImport.FindAllString(string(source), -1), makeErrors, unmade},
			} {
				if rule.found != nil && rule.allowed[file] == "" {
					t.Errorf("%s %s: %q; internal/fates has the table of what becomes of it", file, rule.what, rule.found)
				} else if rule.found != nil {
					delete(rule.unused, file)
				}
			}
		}
	}
	if looked < 60 || len(unread) > 0 || len(uncoded) > 0 || len(unmade) > 0 {
		t.Errorf("%d packages were looked at; no text of an error is read in %v, no answer is looked at in %v, and none is made in %v", looked, unread, uncoded, unmade)
	}
}

// asksFates reports whether a package may meet answers of API servers, and is not the table itself.
func asksFates(path string) bool {
	half, rest, _ := strings.Cut(path, "/")
	if half == "internal" {
		return rest != "fates" && rest != "arch" && !strings.HasPrefix(rest, "test/")
	}
	return slices.Contains([]string{"sync", "bind", "export", "klutch", "auth", "cmd"}, half)
}

var errorsImport = regexp.MustCompile(`"k8s\.io/apimachinery/pkg/api/errors"`)

// makeErrors has the files that make errors of API servers, and look at none.
var makeErrors = map[string]string{
	"internal/watchstore/reflector.go": "client-go's reflector lists anew after such an error",
	"internal/watchstore/store.go":     "the same, of a store that has ended",
}

// codesOfOthers has the files that look at codes, reasons and errors which are none of an API
// server, or decide nothing by them, and why internal/fates cannot be asked there.
var codesOfOthers = map[string]string{
	"bind/client.go":                  "a backend serves the discovery document; of an error for the way there it takes the query off",
	"bind/install.go":                 "the kubelet's word for why a container waits, in the status of a pod that an API server has given",
	"bind/internal/crd/names.go":      "client-go's error for a list that is whole but for API servers behind that one: no answer of one, so that the table has no kind for it",
	"auth/grant.go":                   "a backend serves the token endpoint, and package auth imports nothing of Kubernetes, as the table does",
	"auth/keys.go":                    "the same, of an issuer",
	"auth/provider.go":                "the same, of an issuer",
	"klutch/conformance/browser.go":   "the pages of a backend, whose very codes are tested",
	"klutch/conformance/discovery.go": "the same",
	"klutch/conformance/machine.go":   "the same",
	"klutch/conformance/refusal.go":   "the same",
	"internal/kubeconfig/answer.go":   "answers pass through, whatever they say, before a client makes errors of them: it bounds their sizes",
}

var (
	codeOfAnswer = regexp.MustCompile(`StatusReason\w*|APIStatus|ErrStatus|\w+\.StatusCode\b|\.Status\(\)\.(?:Code|Reason|Details)\b` +
		`|\.Reason [!=]= "\w+"|(?:[!=]=|[<>]=?) http\.Status\w+|case http\.Status\w+|(?i:code)\w* [!=<>]=? ?[345]\d\d\b|case [345]\d\d\b` +
		`|RetryOnConflict|\b(?:meta|discovery|utilnet|kerrors)\.(?:Is|As)\w+\(|\*?\b(?:net|url|x509|tls|syscall)\.\w*(?:Error|Errno)\b|\bnet\.Err\w+|\bsyscall\.E[A-Z]+\b`)
	askedFates = regexp.MustCompile(`fates\.OfCode\(\w+\.StatusCode\)`)
	succeeded  = regexp.MustCompile(`(?:\w+\.)?\w+ [!=]= http\.StatusOK\b`)
)

// readsCodes returns where a source looks itself at the code or the reason of an answer that is no
// success, or at why there is none.
func readsCodes(source string) []string {
	return codeOfAnswer.FindAllString(succeeded.ReplaceAllString(askedFates.ReplaceAllString(source, ""), ""), -1)
}

// notOfAPIServers has the files that read texts of errors that are no answer of an API server, and
// why by the text.
var notOfAPIServers = map[string]string{
	"cmd/kubectl-bind/exit.go":   "hints for people, by errors of client-go for a kubeconfig, which have no type, and for the way to a server, of which the table says less",
	"cmd/kubectl-bind/plugin.go": "cobra's error for an unknown command has no type",
}

var textOfError = regexp.MustCompile(`(?:strings\.(?:Contains|HasPrefix|HasSuffix|EqualFold|Index|Cut|CutPrefix|CutSuffix)|\.(?:MatchString|FindString\w*))\([^\n]*\.Error\(\)|\.Error\(\) [!=]= ` +
	`|" denied request: "|\bfates\.(?:Explain|Message|Stable)\([^\n]*\), "`)

// readsErrors returns where a source looks into the text of an error.
func readsErrors(source string) []string { return textOfError.FindAllString(source, -1) }

// TestReadsErrors makes sure that the rule itself bites.
func TestReadsErrors(t *testing.T) {
	for _, source := range []string{
		`return strings.Contains(err.Error(), "denied")`, `pattern.FindStringSubmatch(err.Error())`, `err.Error() == "no"`,
		`strings.HasPrefix(strings.ToLower(err.Error()), "no")`, `strings.Cut(text, " denied request: ")`, `strings.Contains(fates.Explain(err), "no")`,
	} {
		if readsErrors(source) == nil {
			t.Errorf("%s is not seen", source)
		}
	}
	if got := readsErrors(`log.Info("refused", "reason", err.Error())`); got != nil {
		t.Errorf("%q reads nothing", got)
	}
	for _, source := range []string{
		`if resp.StatusCode == http.StatusUnauthorized {`, `if resp.StatusCode >= 500 {`, `switch resp.StatusCode {`, `var status apierrors.APIStatus`,
		`s.Reason == metav1.StatusReasonForbidden`, `err.ErrStatus.Code`, `err.Status().Code`, `answer.Reason == "NotFound"`,
		`if code == http.StatusConflict {`, `if code >= 500 {`, `case http.StatusGone:`, `status.Code == 404`,
		`meta.IsNoMatchError(err)`, `discovery.IsGroupDiscoveryFailedError(err)`, `retry.RetryOnConflict(retry.DefaultRetry, write)`, `utilnet.IsConnectionRefused(err)`,
		`errors.AsType[*net.OpError](err)`, `errors.AsType[net.Error](err)`, `errors.AsType[*url.Error](err)`, `errors.AsType[x509.UnknownAuthorityError](err)`,
		`errors.AsType[*tls.CertificateVerificationError](err)`, `errors.Is(err, syscall.ECONNREFUSED)`, `errors.Is(err, net.ErrClosed)`,
	} {
		if readsCodes(source) == nil {
			t.Errorf("%s is not seen", source)
		}
	}
	for _, source := range []string{
		`if fates.OfCode(resp.StatusCode) == fates.Unauthorized { w.WriteHeader(http.StatusNotFound) }`,
		`if resp.StatusCode != http.StatusOK {`, `c.Reason == v1alpha1.ReasonPending`, `if n.Reason != "" {`, `timeout := net.JoinHostPort(host, "443")`,
	} {
		if got := readsCodes(source); got != nil {
			t.Errorf("%q decides nothing by a code: %q", source, got)
		}
	}
}
