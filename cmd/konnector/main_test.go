// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind"
	klutchsync "github.com/klutch-go/sdk/sync"
)

func TestParse(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("POD_NAME", "konnector-0")
	t.Setenv("POD_NAMESPACE", "elsewhere")
	type result struct {
		Kubeconfig, Lease, Namespace, Identity, Health string
		Interval                                       time.Duration
	}
	for name, tc := range map[string]struct {
		args []string
		want result
	}{
		"in a pod": {nil, result{"", "klutch-bind", "elsewhere", "konnector-0", "127.0.0.1:8080", 5 * time.Minute}},
		"by hand": {
			[]string{"--kubeconfig=k", "--lease-name=l", "--lease-namespace=n", "--health-address=", "--heartbeat-interval=1m", "-v=4"},
			result{"k", "l", "n", "konnector-0", "", time.Minute},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, err := parse(tc.args, io.Discard)
			if err != nil {
				t.Fatal(err)
			}
			k := f.konnector
			got := result{f.kubeconfig, k.LeaseName, k.LeaseNamespace, k.Identity, k.HealthAddress, k.Options.HeartbeatInterval}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The help says what the program does, and names each flag.
func TestHelp(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	t.Setenv("POD_NAMESPACE", "")
	var stderr bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, &stderr); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, words := range []string{"keeps the objects of bound APIs in step", "kubectl bind konnector", "--kubeconfig ~/.kube/config", "-deletion-limit", "-version"} {
		if !strings.Contains(stderr.String(), words) {
			t.Errorf("no %q in\n%s", words, &stderr)
		}
	}
}

// The metrics of a Sync stand where Prometheus looks for them.
func TestMeasure(t *testing.T) {
	f, err := parse([]string{"--deletion-limit=7"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	f.configure()
	k, opts := f.konnector, klutchsync.Options{}
	k.Options.Sync("widgets.example.org", &opts)
	opts.Hooks.Done(t.Context(), klutchsync.Result{})
	b, err := bind.New(&rest.Config{}, k.Options)
	if err != nil {
		t.Fatal(err)
	}
	k.Observe(b)
	page := httptest.NewRecorder()
	k.Metrics.ServeHTTP(page, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	if counted := `klutch_sync_passes_total{action="none",resource="widgets.example.org",result="ok"} 1`; opts.DeletionLimit != 7 || !strings.Contains(page.Body.String(), counted) {
		t.Errorf("limit %d, page:\n%s", opts.DeletionLimit, page.Body)
	}
}

// Exit codes are those of the backend.
func TestExitCodes(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	empty := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		arg  string
		code int
		says string
	}{
		"help":             {"--help", 0, "keeps the objects of bound APIs in step"},
		"unknown flag":     {"--nonsense", 2, "flag provided but not defined: -nonsense: see konnector --help"},
		"no number":        {"--deletion-limit=many", 2, "deletion-limit"},
		"argument":         {"run", 2, `unknown argument "run": see konnector --help`},
		"no cluster":       {"--kubeconfig=", 1, "unable to load in-cluster configuration"},
		"missing file":     {"--kubeconfig=" + empty + "-not", 1, "no such file"},
		"empty kubeconfig": {"--kubeconfig=" + empty, 1, "invalid configuration"},
	} {
		var stderr bytes.Buffer
		if code := exit(run(t.Context(), []string{c.arg}, &stderr), &stderr); code != c.code || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%s: exit %d, want %d and %q\n%s", name, code, c.code, c.says, &stderr)
		}
	}
}
