// SPDX-License-Identifier: Apache-2.0

package pairings

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"math/big"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/internal/test/stack"
	"github.com/klutch-go/sdk/internal/test/testissuer"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

const cliManager = "kubectl-bind" // of the creates and updates of Klutch's CLI

// A klutchCLI does in an App Cluster what Klutch's own kubectl-bind does there. The person
// accepts each claim.
type klutchCLI struct {
	*side

	backend string // URL
	person  visitor
}

// bind is kubectl bind URL, where the person clicks on the service of this name.
func (c *klutchCLI) bind(ctx context.Context, service string) error {
	answer, err := c.login(ctx, service)
	if err != nil {
		return err
	}
	config, err := clientcmd.NewClientConfigFromBytes(answer.Kubeconfig)
	if err != nil {
		return err
	}
	secret, err := c.secret(ctx, config, answer.Kubeconfig)
	if err != nil {
		return err
	}
	for _, raw := range answer.Requests {
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(raw.Raw, u); err != nil {
			return err
		}
		if err := c.apiservice(ctx, config, secret, u); err != nil {
			return err
		}
	}
	return nil
}

// login listens for the browser, to which the whole answer is given in a URL.
func (c *klutchCLI) login(ctx context.Context, service string) (*v1alpha1.BindingResponse, error) {
	provider := &v1alpha1.BindingProvider{}
	if err := c.person.read(ctx, c.backend+"/export", provider); err != nil || provider.APIVersion != "v1alpha1" {
		return nil, fmt.Errorf("not supported: %q: %w", provider.APIVersion, err)
	}
	home, err := c.kube.CoreV1().Namespaces().Get(ctx, v1alpha1.Namespace, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "localhost:0")
	if err != nil {
		return nil, err
	}
	answers := make(chan string, 1)
	server := &http.Server{ReadTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/callback" {
			answers <- r.URL.Query().Get("response")
		}
	})}
	go func() { _ = server.Serve(listener) }()
	defer func() { _ = server.Close() }()

	sum, session := sha256.Sum224([]byte(home.UID)), rand.Text()[:6]
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	query := url.Values{"p": {port}, "s": {session}, "c": {new(big.Int).SetBytes(sum[:]).Text(62)[:6]}}
	if err := c.person.click(ctx, provider.AuthenticationMethods[0].OAuth2CodeGrant.AuthenticatedURL+"?"+query.Encode(), service); err != nil {
		return nil, err
	}
	var data []byte
	select {
	case response := <-answers:
		if data, err = base64.StdEncoding.DecodeString(response); err != nil {
			return nil, err
		}
	default: // the visitor has followed each redirect by now
		return nil, fmt.Errorf("%s did not lead the browser back to kubectl bind", c.backend)
	}
	answer := &v1alpha1.BindingResponse{}
	if err := json.Unmarshal(data, answer); err != nil {
		return nil, err
	}
	if answer.GroupVersionKind() != v1alpha1.GroupVersion.WithKind("BindingResponse") || answer.Authentication.OAuth2CodeGrant.SessionID != session {
		return nil, fmt.Errorf("not the answer to %s: %+v", session, answer.TypeMeta)
	}
	return answer, nil
}

// secret updates the Secret that leads to the same place, or makes one.
func (c *klutchCLI) secret(ctx context.Context, config clientcmd.ClientConfig, kubeconfig []byte) (*unstructured.Unstructured, error) {
	secrets := c.dyn.Resource(secretsGVR).Namespace(v1alpha1.Namespace)
	list, err := secrets.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	data := map[string]any{"kubeconfig": base64Of(kubeconfig)}
	for _, u := range list.Items {
		had, err := base64.StdEncoding.DecodeString(text(&u, "data", "kubeconfig"))
		if err != nil || len(had) == 0 {
			continue
		}
		other, err := clientcmd.NewClientConfigFromBytes(had)
		if err == nil && destination(other) == destination(config) {
			u.Object["data"] = data
			return secrets.Update(ctx, &u, metav1.UpdateOptions{FieldManager: cliManager})
		}
	}
	u := object("v1", "Secret", v1alpha1.Namespace, "", map[string]any{"data": data})
	u.SetGenerateName("kubeconfig-")
	return secrets.Create(ctx, u, metav1.CreateOptions{FieldManager: cliManager})
}

// destination is where a kubeconfig leads to: host and namespace.
func destination(config clientcmd.ClientConfig) string {
	client, err := config.ClientConfig()
	if err != nil {
		return err.Error()
	}
	namespace, _, err := config.Namespace()
	return fmt.Sprint(client.Host, " ", namespace, err)
}

// apiservice is kubectl bind apiservice -f: it asks for the export, and makes the binding.
func (c *klutchCLI) apiservice(ctx context.Context, config clientcmd.ClientConfig, secret, request *unstructured.Unstructured) error {
	if err := export(ctx, config, request.DeepCopy()); err != nil {
		return err
	}
	resources, _, _ := unstructured.NestedSlice(request.Object, "spec", "resources")
	for _, one := range resources {
		m, _ := one.(map[string]any)
		if err := c.install(ctx, secret, fmt.Sprintf("%s.%s", m["resource"], m["group"]), m["permissionClaims"]); err != nil {
			return err
		}
	}
	return nil
}

// export waits until the platform has answered.
func export(ctx context.Context, config clientcmd.ClientConfig, request *unstructured.Unstructured) error {
	client, err := config.ClientConfig()
	if err != nil {
		return err
	}
	namespace, _, err := config.Namespace()
	if err != nil {
		return err
	}
	remote, err := dynamic.NewForConfig(client)
	if err != nil {
		return err
	}
	requests := remote.Resource(requestsGVR).Namespace(namespace)
	made, err := requests.Create(ctx, request, metav1.CreateOptions{FieldManager: cliManager})
	if apierrors.IsAlreadyExists(err) {
		request.SetGenerateName(request.GetName() + "-")
		request.SetName("")
		made, err = requests.Create(ctx, request, metav1.CreateOptions{FieldManager: cliManager})
	}
	if err != nil {
		return err
	}
	return wait.PollUntilContextTimeout(ctx, time.Second, 10*time.Minute, true, func(ctx context.Context) (bool, error) {
		now, err := requests.Get(ctx, made.GetName(), metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		if text(now, "status", "phase") == "Failed" {
			return false, errors.New("binding request failed: " + text(now, "status", "terminalMessage"))
		}
		return text(now, "status", "phase") == "Succeeded", nil
	})
}

// install makes the binding, or checks that the one that is there is the same platform's.
func (c *klutchCLI) install(ctx context.Context, secret *unstructured.Unstructured, name string, claims any) error {
	bindings := c.dyn.Resource(bindingsGVR).Namespace(v1alpha1.Namespace)
	was, err := bindings.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		if text(was, "spec", "kubeconfigSecretRef", "name") != secret.GetName() {
			return fmt.Errorf("found existing APIServiceBinding %s not from this service provider", name)
		}
		crd, err := c.dyn.Resource(crdsGVR).Get(ctx, name, metav1.GetOptions{})
		if err == nil && !slices.ContainsFunc(crd.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
			return o.APIVersion == v1alpha1.GroupVersion.String() && o.Kind == "APIServiceBinding" && o.Name == name && o.UID == was.GetUID()
		}) {
			err = fmt.Errorf("CustomResourceDefinition %s exists, but is not owned by klutch-bind", name)
		}
		return ignore(apierrors.IsNotFound, err)
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	var accepted []any
	asked, _ := claims.([]any)
	for _, one := range asked {
		claim, _ := one.(map[string]any)
		claim["state"] = "Accepted"
		accepted = append(accepted, claim)
	}
	binding := object(v1alpha1.GroupVersion.String(), "APIServiceBinding", v1alpha1.Namespace, name, map[string]any{"spec": map[string]any{
		"kubeconfigSecretRef": map[string]any{"name": secret.GetName(), "key": "kubeconfig", "namespace": v1alpha1.Namespace}, "permissionClaims": accepted,
	}})
	if _, err := bindings.Create(ctx, binding, metav1.CreateOptions{FieldManager: cliManager}); err != nil {
		return err
	}
	pending := fmt.Appendf(nil, `{"status":{"conditions":[{"type":"Ready","status":"False","severity":"Info","reason":"Pending","message":"Pending","lastTransitionTime":%q}]}}`,
		time.Now().UTC().Format(time.RFC3339))
	_, _ = bindings.Patch(ctx, name, types.MergePatchType, pending, metav1.PatchOptions{FieldManager: cliManager}, "status") // the konnector may be faster
	return nil
}

// A visitor is a person with a browser, at backends that answer through it.
type visitor struct {
	*testissuer.Browser

	name string
}

func (v visitor) read(ctx context.Context, target string, into any) error {
	page, err := v.Get(ctx, target)
	if err != nil {
		return err
	}
	return json.NewDecoder(bytes.NewBufferString(page.Body)).Decode(into)
}

// click signs in, and follows the link of the service.
func (v visitor) click(ctx context.Context, target, service string) error {
	plural, group, _ := strings.Cut(service, ".")
	link := regexp.MustCompile(`<a class="` + plural + `" href="([^"]*group=` + regexp.QuoteMeta(group) + `&[^"]*)"`)
	page, err := v.Get(ctx, target)
	for n := 0; err == nil && n < 3 && !link.MatchString(page.Body) && len(page.Forms) > 0; n++ {
		page.Forms[0].Fields.Set("username", v.name)
		page.Forms[0].Fields.Set("password", stack.Password)
		page, err = v.Submit(ctx, page.Forms[0])
	}
	if err != nil {
		return err
	}
	found := link.FindStringSubmatch(page.Body)
	if found == nil {
		return fmt.Errorf("no link of %s for %s:\n%s", service, v.name, page.Body)
	}
	next, err := page.URL.Parse(html.UnescapeString(found[1]))
	if err != nil {
		return err
	}
	page, err = v.Get(ctx, next.String())
	if err == nil && page.Status != http.StatusOK {
		err = fmt.Errorf("%s: status %d:\n%s", page.URL.Path, page.Status, page.Body)
	}
	return err
}
