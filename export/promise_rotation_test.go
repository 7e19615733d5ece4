// SPDX-License-Identifier: Apache-2.0

package export

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export/internal/tenant"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// TestP13ALoginEndsWhatWasStolen: who has a tenant's token reads its successors, until
// the tenant's owner logs in again.
func TestP13ALoginEndsWhatWasStolen(t *testing.T) {
	w := newStillWorld(t)
	w.serve(Options{Handshake: Handshake{
		Machines: auth.Providers{must(auth.New(auth.Config{Issuer: w.issuer.URL(), ClientID: "klutch", Audiences: []string{"klutch-machines"}}))},
	}})
	thief := w.tenant("ada", "c1", "widgets.example.org")
	w.passTime(thief.namespace)
	seen := make(chan []string, 1)
	go func() { seen <- thief.watchCredential() }()
	owner := w.tenant("ada", "c1", "widgets.example.org")
	if _, err := owner.kube.CoreV1().Namespaces().Get(t.Context(), owner.namespace, metav1.GetOptions{}); err != nil {
		t.Errorf("the new credential: %v", err)
	}
	if got := <-seen; slices.ContainsFunc(got, func(token string) bool { return token != "" && token != thief.config.BearerToken }) {
		t.Error("the thief has read the next token")
	}
	var kept string
	w.eventually("what is kept is good again", func(ctx context.Context) (bool, error) {
		k, err := kubeconfig.Read([]byte(w.kubeconfigOf(owner.namespace))) //nolint:contextcheck // the world has one
		if err != nil {
			return false, nil //nolint:nilerr // not yet
		}
		kept = k.Token
		_, err = must(kubernetes.NewForConfig(k.RESTConfig())).CoreV1().Namespaces().Get(ctx, owner.namespace, metav1.GetOptions{})
		return err == nil, nil
	})
	if live := w.anchorOf(owner.namespace); boundTo(t, kept) != live || boundTo(t, owner.config.BearerToken) != live {
		t.Error("a credential of after the login is bound to something else than what is there")
	}
	t.Run("P13 no watch outlives a login and brings the next token", func(t *testing.T) { w.t = t; openWatch(t, w) })
	t.Run("P13 a clock that is behind shows no thief the next token", func(t *testing.T) { w.t = t; clockBehind(t, w) })
	t.Run("P13 a code that was used ends nothing", func(t *testing.T) { w.t = t; replays(t, w) })
	t.Run("P13 a machine that binds again ends what it had", func(t *testing.T) { w.t = t; machineAgain(t, w) })
	t.Run("P13 many logins at once end no credential of one another", func(t *testing.T) { w.t = t; manyHandOuts(t, w) })
}

// passTime makes the anchor of a tenant an hour older.
func (w *world) passTime(tenant string) {
	w.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.MadeAtAnnotation, time.Now().Add(-time.Hour).Format(time.RFC3339))
	if _, err := w.admin.CoreV1().Secrets(tenant).Patch(w.t.Context(), v1alpha1.TokenAnchorSecret, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) anchorOf(tenant string) types.UID {
	w.t.Helper()
	anchor, err := w.admin.CoreV1().Secrets(tenant).Get(w.t.Context(), v1alpha1.TokenAnchorSecret, metav1.GetOptions{})
	if err != nil {
		w.t.Fatal(err)
	}
	return anchor.UID
}

// boundTo is the UID of what a token dies with.
func boundTo(t *testing.T, token string) types.UID {
	t.Helper()
	var claims struct {
		Kubernetes struct{ Secret struct{ UID types.UID } } `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(must(base64.RawURLEncoding.DecodeString(strings.Split(token, ".")[1])), &claims); err != nil {
		t.Fatal(err)
	}
	return claims.Kubernetes.Secret.UID
}

// watchCredential reads the credential that is kept until it is refused, or for too long,
// and returns the tokens that were there.
func (c *tenantClient) watchCredential() (tokens []string) {
	err := wait.PollUntilContextTimeout(c.w.t.Context(), 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		secret, err := c.kube.CoreV1().Secrets(c.namespace).Get(ctx, v1alpha1.KubeconfigSecretName, metav1.GetOptions{})
		if err == nil {
			_, token, _ := strings.Cut(string(secret.Data[v1alpha1.KubeconfigKey]), "token: ")
			tokens = append(tokens, strings.TrimSpace(token))
		}
		return apierrors.IsUnauthorized(err), nil
	})
	if err != nil {
		c.w.t.Error("a stolen token outlives the login of its owner")
	}
	return slices.Compact(tokens)
}

// openWatch has a thief watch the credential before its owner logs in: API servers do not
// end what they have begun.
func openWatch(t *testing.T, w *world) {
	t.Helper()
	thief := w.tenant("ada", "watched", "widgets.example.org")
	w.passTime(thief.namespace)
	events, err := thief.kube.CoreV1().Secrets(thief.namespace).Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=" + v1alpha1.KubeconfigSecretName})
	if apierrors.IsForbidden(err) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer events.Stop()
	w.tenant("ada", "watched", "widgets.example.org")
	if _, _, err := w.exporter.tenants.Credentials.Current(t.Context(), thief.namespace, 0); err != nil { // as when it is settled
		t.Fatal(err)
	}
	for range 3 { // what was there, what was taken away, what came
		event := <-events.ResultChan()
		secret, _ := event.Object.(*corev1.Secret)
		if secret == nil || len(secret.Data) == 0 {
			continue
		}
		if k := must(kubeconfig.Read(secret.Data[v1alpha1.KubeconfigKey])); boundTo(t, k.Token) == w.anchorOf(thief.namespace) {
			t.Error("the thief has read the next token")
		}
	}
}

// clockBehind revokes a credential where the API server's clock is an hour behind ours.
func clockBehind(t *testing.T, w *world) {
	t.Helper()
	config := rest.CopyConfig(w.config)
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return behind{next} })
	exporter := must(New(config, w.exporter.opts))
	tenant := must(exporter.tenants.Bind(t.Context(), tenant.Record{Identity: auth.Identity{Issuer: w.issuer.URL(), Subject: "ada"}, Cluster: "behind"}))
	if err := w.admin.CoreV1().Secrets(tenant).Delete(t.Context(), v1alpha1.TokenAnchorSecret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if data, again, err := exporter.tenants.Credentials.Current(t.Context(), tenant, exporter.tenants.Opts.Pauses.Settle); err != nil || data != nil || again < exporter.tenants.Opts.Pauses.Settle/2 {
		t.Errorf("%d bytes are kept at once, again in %s, %v", len(data), again, err)
	}
}

// behind is the way to an API server by whose clock things are made an hour earlier.
type behind struct{ http.RoundTripper }

var createdAt = regexp.MustCompile(`"creationTimestamp":"[^"]*"`)

func (b behind) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err != nil || !strings.Contains(req.URL.Path, "/secrets") && !strings.Contains(req.URL.Path, "/serviceaccounts") {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	then := fmt.Sprintf(`"creationTimestamp":%q`, time.Now().Add(-time.Hour).UTC().Format(time.RFC3339))
	resp.Body = io.NopCloser(bytes.NewReader(createdAt.ReplaceAll(body, []byte(then))))
	return resp, err
}

func replays(t *testing.T, w *world) {
	t.Helper()
	g, _, err := w.login("grace", "c1", "widgets.example.org")
	if err != nil {
		t.Fatal(err)
	}
	if got := w.redeem(g, nil); got.Status != http.StatusOK {
		t.Fatalf("%d %s", got.Status, got.Body)
	}
	tenant := tenant.Holder{Issuer: w.issuer.URL(), Subject: "grace", Cluster: "c1"}.Namespace("cluster")
	w.passTime(tenant)
	before := w.anchorOf(tenant)
	if got := w.redeem(g, nil); got.Status != http.StatusBadRequest || w.anchorOf(tenant) != before {
		t.Errorf("%d %s, and the anchor was replaced: %t", got.Status, got.Body, w.anchorOf(tenant) != before)
	}
}

func machineAgain(t *testing.T, w *world) {
	t.Helper()
	bind := func() *tenantClient {
		answer := w.post("/bind-noninteractive", `{"clusterID": "robot", "apis": [{"group": "example.org", "resource": "widgets"}]}`,
			"Authorization", "Bearer "+must(w.issuer.AccessToken("ada", "klutch-machines")))
		if answer.Status != http.StatusOK {
			t.Fatalf("%d %s", answer.Status, answer.Body)
		}
		return w.client(answer.Body)
	}
	first := bind()
	w.passTime(first.namespace)
	second := bind()
	if live := w.anchorOf(first.namespace); boundTo(t, first.config.BearerToken) == live || boundTo(t, second.config.BearerToken) != live {
		t.Error("the first token outlives the second bind")
	}
}

func manyHandOuts(t *testing.T, w *world) {
	t.Helper()
	tenant := tenant.Holder{Issuer: w.issuer.URL(), Subject: "ada", Cluster: "c1"}.Namespace("cluster")
	w.passTime(tenant)
	before := w.anchorOf(tenant)
	replicas := []*Exporter{w.exporter, must(New(w.config, w.exporter.opts))}
	tokens := make([]string, 50)
	var logins sync.WaitGroup
	for i := range tokens {
		logins.Go(func() {
			data, err := replicas[i%2].tenants.Credentials.HandOut(t.Context(), tenant)
			if err != nil {
				t.Error(err)
				return
			}
			tokens[i] = must(kubeconfig.Read(data)).Token
		})
	}
	logins.Wait()
	live := w.anchorOf(tenant)
	if live == before {
		t.Error("none has replaced the anchor")
	}
	for i, token := range tokens {
		if token != "" && boundTo(t, token) != live {
			t.Errorf("login %d got a credential that is dead", i)
		}
	}
}

// TestP13LoginAge: where an age is set, the credential of a tenant whose last login is older
// is renewed no more, which conditions and the audit log say before and after. A new login
// ends that.
func TestP13LoginAge(t *testing.T) {
	w := newStillWorld(t)
	const most = 100 * time.Hour
	w.serve(Options{ReviewInterval: time.Second, MaxLoginAge: most})
	ada := w.tenant("ada", "c1", "widgets.example.org")
	ada.request("one", "widgets.example.org")
	said := func(status metav1.ConditionStatus, reason string) {
		t.Helper()
		is := func(conditions []v1alpha1.Condition) bool {
			c := v1alpha1.FindCondition(conditions, v1alpha1.ConditionLoginCurrent)
			return c != nil && c.Status == status && c.Reason == reason && (reason == "" || strings.Contains(c.Message, "kubectl bind rotate"))
		}
		until(w, "clusterbindings", ada.namespace, "cluster", func(o *v1alpha1.ClusterBinding) bool { return is(o.Status.Conditions) })
		until(w, "apiserviceexports", ada.namespace, "widgets.example.org", func(o *v1alpha1.APIServiceExport) bool { return is(o.Status.Conditions) })
	}
	said(metav1.ConditionTrue, "")
	w.lastLogin(ada.namespace, 95*time.Hour)
	said(metav1.ConditionTrue, v1alpha1.ReasonLoginEnding)
	w.awaitRecord("login about to end")
	w.lastLogin(ada.namespace, most)
	said(metav1.ConditionFalse, v1alpha1.ReasonLoginTooOld)
	w.awaitRecord("login too old")
	before := w.kubeconfigOf(ada.namespace)
	due := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.RenewAfterAnnotation, time.Now().Add(-time.Minute).Format(time.RFC3339))
	if _, err := w.admin.CoreV1().Secrets(ada.namespace).Patch(t.Context(), v1alpha1.KubeconfigSecretName, types.MergePatchType, due, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	c := w.exporter.running.Load()
	again, err := c.tenants.Tenants.Keep(t.Context(), ada.namespace) // as the event of this does
	if err != nil || again <= 0 || w.kubeconfigOf(ada.namespace) != before {
		t.Errorf("renewed although the login is too old: again in %s, %v", again, err)
	}
	w.passTime(ada.namespace)
	ada = w.tenant("ada", "c1", "widgets.example.org")
	said(metav1.ConditionTrue, "")
	w.eventually("a credential that is kept", func(context.Context) (bool, error) {
		now := w.kubeconfigOf(ada.namespace) //nolint:contextcheck // the world has one
		return now != "" && now != before, nil
	})
}

// lastLogin has a tenant's last login be that long ago.
func (w *world) lastLogin(namespace string, ago time.Duration) {
	w.t.Helper()
	err := w.exporter.tenants.Records.Update(w.t.Context(), namespace, func(r *tenant.Record) error {
		r.LoggedIn = time.Now().Add(-ago).UTC().Truncate(time.Second)
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}
