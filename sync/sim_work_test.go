// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// workload is what users and providers do.
func workload() []generator {
	return []generator{
		{"create", 8, doCreate},
		{"update", 6, func(s *sim, o op) {
			s.merge(sideSource, o.name, "user", fmt.Sprintf(`{"spec":{"size":"%d"}}`, o.n%4))
		}},
		{"unset", 2, func(s *sim, o op) { s.merge(sideSource, o.name, "user", `{"spec":{"size":null}}`) }},
		{"label", 2, func(s *sim, o op) {
			s.merge(sideSource, o.name, "user", fmt.Sprintf(`{"metadata":{"labels":{"tier":"%d","app.kubernetes.io/instance":"argo"}}}`, o.n%3))
		}},
		{"delete", 6, func(s *sim, o op) {
			_ = s.things(sideSource, o.name.Namespace).Delete(s.ctx, o.name.Name, metav1.DeleteOptions{})
		}},
		{"invalid", 1, func(s *sim, o op) { s.merge(sideSource, o.name, "user", `{"spec":{"size":"huge"}}`) }},
		{"invalid create", 0, func(s *sim, o op) {
			doCreate(s, o)
			s.merge(sideSource, o.name, "user", `{"spec":{"size":"huge"}}`)
		}},
		{"status", 10, doStatus},
		{"late-init", 2, func(s *sim, o op) {
			s.merge(sideTarget, o.target(), "provider", fmt.Sprintf(`{"spec":{"late":"%d"},"metadata":{"labels":{"provider/x":"%d"},"annotations":{"provider/y":"%d"}}}`, o.n, o.n%3, o.n))
		}},
		{"secret", 4, doSecret},
		{"forget-secret", 2, func(s *sim, o op) {
			_ = s.users[sideTarget].Resource(simSecrets).Namespace(o.target().Namespace).Delete(s.ctx, "creds-"+o.name.Name, metav1.DeleteOptions{})
		}},
		{"message", 1, func(s *sim, o op) {
			s.merge(sideSource, o.name, "user", fmt.Sprintf(`{"metadata":{"annotations":{"note":"%d"},"finalizers":null}}`, o.n))
		}},
	}
}

func doCreate(s *sim, o op) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1", "kind": "Widget",
		"spec": map[string]any{"size": fmt.Sprint(o.n % 4), "color": "Red", "resourceRef": map[string]any{"name": "composed"}},
	}}
	if s.plan.has(secretsOfSource) {
		_ = unstructured.SetNestedField(u.Object, keyPrefix+o.name.Name, "spec", "key")
	}
	u.SetName(o.name.Name)
	u.SetAnnotations(map[string]string{"argocd.argoproj.io/tracking-id": "app", "team": "red"})
	_, _ = s.things(sideSource, o.name.Namespace).Create(s.ctx, u, metav1.CreateOptions{FieldManager: "user"})
}

// doStatus makes the provider report on a target: each report has a number.
func doStatus(s *sim, o op) {
	t := s.get(sideTarget, o.target())
	if t == nil {
		return
	}
	s.token++
	secret := "null"
	if o.n%3 > 0 {
		secret = `"creds-` + o.name.Name + `"`
	}
	s.merge(sideTarget, o.target(), "provider", fmt.Sprintf(
		`{"status":{"phase":"%s.%06d","secret":%s,"observedGeneration":%d,"conditions":[{"type":"Ready","status":"True","observedGeneration":%d}]}}`,
		t.GetUID(), s.token, secret, t.GetGeneration(), t.GetGeneration()), s.statusOf(sideTarget)...)
}

// statusOf is the part of a side's things that a status is written to.
func (s *sim) statusOf(side int) []string {
	if s.plain[side] {
		return nil
	}
	return []string{"status"}
}

// doSecret makes the provider write a credential, with a content that tells
// whose it is.
func doSecret(s *sim, o op) {
	s.writeSecret(sideTarget, o.target().Namespace, credsPrefix+o.name.Name, "provider", o.n)
}

func (s *sim) writeSecret(side int, namespace, name, manager string, n int) {
	ri := s.users[side].Resource(simSecrets).Namespace(namespace)
	if have, err := ri.Get(s.ctx, name, metav1.GetOptions{}); err == nil {
		have = have.DeepCopy()
		have.Object["data"] = map[string]any{"owner": "canary/" + string(have.GetUID()), "n": fmt.Sprint(n)}
		_, _ = ri.Update(s.ctx, have, metav1.UpdateOptions{FieldManager: manager})
		return
	}
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "type": "Opaque"}}
	u.SetName(name)
	if _, err := ri.Create(s.ctx, u, metav1.CreateOptions{FieldManager: manager}); err == nil {
		s.writeSecret(side, namespace, name, manager, n)
	}
}

func tokenOf(status any) (uid string, n int, ok bool) {
	m, _ := status.(map[string]any)
	phase, _ := m["phase"].(string)
	i := strings.LastIndex(phase, ".")
	if i < 0 {
		return "", 0, false
	}
	_, err := fmt.Sscanf(phase[i+1:], "%d", &n)
	return phase[:i], n, err == nil
}
