// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/klutch-go/sdk/bind"
	"github.com/klutch-go/sdk/internal/kubeconfig"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A check is one fact about a backend.
type check struct {
	name  string // group/words
	basis string // the section or promise that it checks
	run   func(checker)
}

// A suite is what the checks share: each tenant is made once, when first needed.
type suite struct {
	Options
	client   *bind.Client
	http     *browser
	service  schema.GroupResource
	provider func() (*v1alpha1.BindingProvider, error)
	one, two func() (*tenant, error)

	mu   sync.Mutex
	made []func() // to be undone
}

// later has something undone when all checks are through.
func (s *suite) later(undo func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made = append(s.made, undo)
}

func (s *suite) tidy() {
	for _, undo := range s.made {
		undo()
	}
}

// A checker is the suite within one check.
type checker struct {
	*testing.T
	*suite
	basis string
}

// violated says that the backend does not keep the fact that is checked.
func (c checker) violated(format string, args ...any) {
	c.Helper()
	c.Errorf("%s: %s", c.basis, fmt.Sprintf(format, args...))
}

// must ends the check where the rest of it makes no sense.
func (c checker) must(what string, err error) {
	c.Helper()
	if err != nil {
		c.Fatalf("%s: %s: %v", c.basis, what, err)
	}
}

// tenant returns a tenant with an export and a service namespace.
func (c checker) tenant(get func() (*tenant, error)) *tenant {
	c.Helper()
	t, err := get()
	c.must("a login has to give a tenant", err)
	return t
}

// eventually waits until done, and reports whether that came to pass.
func (s *suite) eventually(ctx context.Context, done func(context.Context) bool) bool {
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, s.Patience, true, func(ctx context.Context) (bool, error) {
		return done(ctx), nil
	}) == nil
}

// A tenant is what a konnector can do with what a login gave.
type tenant struct {
	response  *v1alpha1.BindingResponse
	access    *kubeconfig.Kubeconfig
	namespace string
	kube      kubernetes.Interface
	dyn       dynamic.Interface
	// export and mirror are made when first asked for: the export of Service, and
	// the service namespace of the namespace conformance.
	export func() (*v1alpha1.APIServiceExport, error)
	mirror func() (string, error)
}

func (t *tenant) ours(resource string) dynamic.ResourceInterface {
	return t.dyn.Resource(v1alpha1.Resource(resource)).Namespace(t.namespace)
}

// read gets one of our objects of the tenant namespace.
func read[T any](ctx context.Context, t *tenant, resource, name string) (*T, error) {
	u, err := t.ours(resource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	o := new(T)
	return o, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, o)
}
