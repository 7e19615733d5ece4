// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/e2e-framework/pkg/env"
	"sigs.k8s.io/e2e-framework/pkg/envconf"

	"github.com/klutch-go/sdk/internal/test/stack"
)

// patience is how long something may take that takes milliseconds on an idle machine.
const patience = 5 * time.Minute

var testenv = env.New()

// services are bound before the first test. keyvalueinstances are left for tests that bind.
var services = []string{"postgresqlinstances.anynines.com", "servicebindings.anynines.com", "backups.anynines.com", "restores.anynines.com"}

func TestMain(m *testing.M) {
	if flag.Parse(); testing.Short() {
		fmt.Fprintln(os.Stderr, "skipped: all tests of this package need real clusters")
		return
	}
	var s *stack.Stack
	var leaks []string
	testenv.Setup(func(ctx context.Context, _ *envconf.Config) (context.Context, error) {
		var err error
		s, err = stack.Start(ctx, stack.Options{Log: os.Stderr, Verbose: true})
		ctx = context.WithValue(ctx, stackKey{}, s)
		if err != nil {
			return ctx, err
		}
		if out := s.Bind(ctx, stack.Developer, serviceFlags(services)...); out.Code != 0 {
			return ctx, fmt.Errorf("kubectl bind: exit code %d\n%s%s", out.Code, out.Stdout, out.Stderr)
		}
		return ctx, nil
	})
	testenv.Finish(func(ctx context.Context, _ *envconf.Config) (context.Context, error) {
		if s == nil {
			return ctx, nil
		}
		h, err := newHunt(ctx, s)
		if err == nil {
			err = h.everywhere(ctx)
			leaks = h.found
		}
		if err != nil {
			leaks = append(leaks, err.Error())
		}
		return ctx, s.Stop()
	})
	code := testenv.Run(m)
	if len(leaks) > 0 { // an error of Finish would not be told
		fmt.Fprintln(os.Stderr, "P9 after all tests:", strings.Join(leaks, "\n"))
		code = max(code, 1)
	}
	if s != nil {
		if code != 0 {
			fmt.Fprintln(os.Stderr, s.KeepLogs())
		}
		_ = s.Remove()
	}
	os.Exit(code)
}

type stackKey struct{}

// of returns the stack that the tests share.
func of(ctx context.Context) *stack.Stack { return ctx.Value(stackKey{}).(*stack.Stack) }

func serviceFlags(services []string) (args []string) {
	for _, s := range services {
		args = append(args, "--service", s)
	}
	return args
}

func resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "anynines.com", Version: "v1", Resource: name}
}

var (
	instances       = resource("postgresqlinstances")
	bindings        = resource("servicebindings")
	backups         = resource("backups")
	restores        = resource("restores")
	serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}
	configMaps      = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets         = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

func object(apiVersion, kind, namespace, name string, rest map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": apiVersion, "kind": kind}}
	maps.Copy(u.Object, rest)
	u.SetName(name)
	u.SetNamespace(namespace)
	return u
}

func instance(namespace, name, plan string) *unstructured.Unstructured {
	return object("anynines.com/v1", "PostgresqlInstance", namespace, name, map[string]any{
		"spec": map[string]any{"service": "a9s-postgresql14", "plan": plan},
	})
}
