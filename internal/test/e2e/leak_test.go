// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/e2e-framework/pkg/features"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
)

// P9 looks at all that is there while the tests run; TestMain looks again after the last
// of them, when all programs have said all that they had to say.
func TestP9NoSecretInLogsOrStatuses(t *testing.T) {
	f := features.New("no secret in logs, metrics and objects").Assess("after a credential has come", step("p9", func(w world) {
		w.apply(w.s.App, w.sample("PostgresqlInstance"), w.sample("ServiceBinding"))
		w.awaitState(bindings, "orders-api", "Created")
		name, _, _ := unstructured.NestedString(w.get(w.app(bindings, "orders-api")).Object, "status", "managed", "secret", "name")
		encoded, _, _ := unstructured.NestedString(w.await(w.app(secrets, name), stack.There).Object, "data", "password")
		h, err := newHunt(w.ctx, w.s)
		w.must(err)
		for _, planted := range []string{"Bearer " + w.credential(), encoded, decoded(encoded)} {
			if h.in("there", planted) == nil {
				w.Error("a secret is not noticed where it stands")
			}
		}
		h.found = nil
		w.must(h.metrics(w.ctx, w.s.Backend, `klutch_logins_total{result="success"} `))
		w.must(h.metrics(w.ctx, w.s.Konnector, `klutch_control_plane_up{resource="postgresqlinstances.anynines.com"} 1`))
		w.must(h.everywhere(w.ctx))
		for _, found := range h.found {
			w.Error(found)
		}
	})).Feature()
	testenv.Test(t, f)
}

// A hunt looks for secrets where none may be.
type hunt struct {
	s      *stack.Stack
	values map[string]string // of a Secret, to where they are from
	found  []string
}

// token is any JSON Web Token.
var token = regexp.MustCompile(`eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{20,}`)

// open are the keys of Secrets that hold nothing secret.
var open = []string{"ca.crt", "namespace", "tls.crt", "username", "database", "host", "port"}

// newHunt is for what stands in the Secrets of both clusters, and in the files that the
// programs were given.
func newHunt(ctx context.Context, s *stack.Stack) (*hunt, error) {
	h := &hunt{s: s, values: map[string]string{}}
	for _, c := range []*cluster.Cluster{s.App, s.Control} {
		client, err := kubernetes.NewForConfig(c.Config())
		if err != nil {
			return nil, err
		}
		all, err := client.CoreV1().Secrets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for _, secret := range all.Items {
			for key, value := range secret.Data {
				if !slices.Contains(open, key) {
					h.know(string(value), fmt.Sprintf("%s of Secret %s/%s in %s", key, secret.Namespace, secret.Name, c.Name()))
				}
			}
		}
	}
	for _, name := range []string{"client-secret", filepath.Base(s.KeyFile())} {
		data, err := os.ReadFile(filepath.Join(s.Dir, name))
		if err != nil {
			return nil, err
		}
		h.know(string(data), name)
	}
	return h, nil
}

// know adds a value, also as it looks in JSON. What is shorter than eight characters may
// stand somewhere by chance.
func (h *hunt) know(value, from string) {
	if len(value) >= 8 {
		h.values[value], h.values[base64.StdEncoding.EncodeToString([]byte(value))] = from, from+", encoded"
	}
}

func (h *hunt) in(where, text string) (found []string) {
	if token.MatchString(text) {
		found = append(found, "a token stands in "+where)
	}
	for value, from := range h.values {
		if strings.Contains(text, value) {
			found = append(found, from+" stands in "+where)
		}
	}
	h.found = append(h.found, found...)
	return found
}

// everywhere looks at what the programs have said, and at all objects but Secrets.
func (h *hunt) everywhere(ctx context.Context) error {
	logs, err := filepath.Glob(filepath.Join(h.s.Dir, "*.log"))
	if err != nil || len(logs) < 4 {
		return fmt.Errorf("only %d logs: %w", len(logs), err)
	}
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		h.in(filepath.Base(path), string(text))
	}
	for _, c := range []*cluster.Cluster{h.s.App, h.s.Control} {
		if err := h.objects(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

func (h *hunt) objects(ctx context.Context, c *cluster.Cluster) error {
	config := c.Config()
	config.WarningHandler = rest.NoWarnings{} // about kinds that no program should use any more
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	resources, err := readable(c)
	if err != nil {
		return err
	}
	for _, gvr := range resources {
		list, err := client.Resource(gvr).List(ctx, metav1.ListOptions{})
		if err != nil {
			return fmt.Errorf("list %s: %w", gvr.Resource, err)
		}
		for _, u := range list.Items {
			text, err := u.MarshalJSON()
			if err != nil {
				return err
			}
			h.in(fmt.Sprintf("%s %s/%s in %s", gvr.GroupResource(), u.GetNamespace(), u.GetName(), c.Name()), string(text))
		}
	}
	return nil
}

// readable are the resources of a cluster, but Secrets.
func readable(c *cluster.Cluster) (all []schema.GroupVersionResource, err error) {
	d, err := discovery.NewDiscoveryClientForConfig(c.Config())
	if err != nil {
		return nil, err
	}
	lists, err := d.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if r.Name != "secrets" {
				all = append(all, gv.WithResource(r.Name))
			}
		}
	}
	if len(all) < 40 {
		return nil, fmt.Errorf("%s has only %d resources", c.Name(), len(all))
	}
	return all, nil
}

// metrics looks at what a program tells Prometheus, which names neither objects nor
// servers, and is to say what it is known to say.
func (h *hunt) metrics(ctx context.Context, p *stack.Process, says string) error {
	where := p.Ready[:strings.LastIndex(p.Ready, "/")] + "/metrics"
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, where, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil || !strings.Contains(string(text), says) {
		return fmt.Errorf("%s says %s, and not %s: %w\n%s", where, resp.Status, says, err, text)
	}
	h.in(where, string(text))
	for _, name := range []string{"orders-api", h.s.Control.URL(), h.s.BackendURL} {
		if strings.Contains(string(text), name) {
			h.found = append(h.found, name+" stands in "+where)
		}
	}
	return nil
}

func decoded(text string) string {
	data, _ := base64.StdEncoding.DecodeString(text)
	return string(data)
}
