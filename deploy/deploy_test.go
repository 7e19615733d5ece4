// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/deploy"
)

func all() map[string][]*unstructured.Unstructured {
	return map[string][]*unstructured.Unstructured{"backend": deploy.Backend("registry/backend:v1"), "konnector": deploy.Konnector("registry/konnector:v1")}
}

// P15: no wildcard, no way around RBAC, and no account is made an administrator.
func TestP15Rules(t *testing.T) {
	programs := all()
	programs["adoption"], programs["prefixed"] = deploy.Adoption(), deploy.Prefixed("continents.example.org")
	programs["klutch-konnectors"] = deploy.KlutchKonnectors()
	for program, objects := range programs {
		for _, u := range objects {
			var role rbacv1.ClusterRole // a Role decodes as well
			if !strings.HasSuffix(u.GetKind(), "Role") {
				continue
			}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &role); err != nil {
				t.Fatal(err)
			}
			for _, rule := range role.Rules {
				words := slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs)
				for _, bad := range []string{"*", "escalate", "impersonate"} {
					if slices.Contains(words, bad) {
						t.Errorf("%s: %s has %s: %+v", program, u.GetName(), bad, rule)
					}
				}
				if slices.Contains(rule.Verbs, "bind") && len(rule.ResourceNames) == 0 {
					t.Errorf("%s: %s may bind any role", program, u.GetName())
				}
			}
		}
	}
}

// Rules of an aggregated ClusterRole are Kubernetes' own: who applies them too, empties them
// or meets a conflict at the second time.
func TestAggregatedRulesAreNotApplied(t *testing.T) {
	for program, objects := range all() {
		for _, u := range objects {
			_, aggregated := u.Object["aggregationRule"]
			if _, rules := u.Object["rules"]; aggregated && rules {
				t.Errorf("%s: %s has rules beside its aggregationRule", program, u.GetName())
			}
		}
	}
}

// Pod Security "restricted", and what it does not ask for.
func TestP15Pods(t *testing.T) {
	for program, objects := range all() {
		i := slices.IndexFunc(objects, func(u *unstructured.Unstructured) bool { return u.GetKind() == "Deployment" })
		var pod corev1.PodSpec
		spec, _, err := unstructured.NestedMap(objects[i].Object, "spec", "template", "spec")
		if err != nil {
			t.Fatal(err)
		}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(spec, &pod); err != nil {
			t.Fatal(err)
		}
		c := pod.Containers[0]
		if c.Image != "registry/"+program+":v1" {
			t.Errorf("%s: image %s", program, c.Image)
		}
		if s := pod.SecurityContext; s == nil || !*s.RunAsNonRoot || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
			t.Errorf("%s: pod %+v", program, s)
		}
		if s := c.SecurityContext; s == nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Contains(s.Capabilities.Drop, "ALL") {
			t.Errorf("%s: container %+v", program, s)
		}
		if c.LivenessProbe == nil || c.ReadinessProbe == nil || c.Resources.Requests.Cpu().IsZero() || c.Resources.Limits.Memory().IsZero() {
			t.Errorf("%s: probes or resources are missing", program)
		}
	}
}

// Kustomize and the library install the same files.
func TestKustomization(t *testing.T) {
	for program := range all() {
		var k struct {
			Resources []string `json:"resources"`
		}
		data, err := os.ReadFile(filepath.Join(program, "kustomization.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.UnmarshalStrict(data, &struct {
			APIVersion string    `json:"apiVersion"`
			Kind       string    `json:"kind"`
			Resources  *[]string `json:"resources"`
		}{Resources: &k.Resources}); err != nil {
			t.Fatal(err)
		}
		files, err := fs.Glob(os.DirFS(program), "*.yaml")
		if err != nil {
			t.Fatal(err)
		}
		files = slices.DeleteFunc(files, func(f string) bool { return f == "kustomization.yaml" })
		if slices.Sort(k.Resources); !slices.Equal(files, k.Resources) {
			t.Errorf("%s: kustomization has %q, the folder %q", program, k.Resources, files)
		}
	}
}

func ExampleKonnector() {
	for _, object := range deploy.Konnector("example.org/konnector:v1.2.0")[:2] {
		fmt.Println(object.GetKind(), object.GetName())
	}
	// Output:
	// Namespace klutch-bind
	// ValidatingAdmissionPolicy klutch-konnector
}
