// SPDX-License-Identifier: Apache-2.0

package servicebroker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/examples/servicebroker/osb"
)

// Finalizer stands on an object for as long as the broker may know it.
const Finalizer = "servicebroker.anynines.com/made"

const (
	poll    = 5 * time.Second    // between looks at an operation, if the broker does not say
	polling = 7 * 24 * time.Hour // until an operation counts as failed, if the plan does not say less
	resync  = 10 * time.Minute   // for Secrets that were lost and plans that came on offer
)

// A Controller carries out the claims of all namespaces.
type Controller struct {
	Broker osb.Broker
	Client dynamic.Interface
	// Types are the serviceInstanceTypes that it carries out, as Served returns them.
	Types []string
	// Cluster names this control plane to the broker.
	Cluster string
	// Actions are those that each service has, also where the catalogue does not say so:
	// osb.Backups, osb.Restores.
	Actions []string
	// Pause between looks at an operation; zero means 5 s or what the broker says.
	Pause time.Duration
}

// group is that of all claims; instances of the serviceInstanceType X are Xinstances there.
var group = schema.GroupVersion{Group: "anynines.com", Version: "v1"}

const ofType = "instances"

// parts are what of an instance the other claims are.
var parts = map[string]string{"servicebindings": osb.Bindings, "backups": osb.Backups, "restores": osb.Restores}

func resource(name string) schema.GroupVersionResource { return group.WithResource(name) }

// A record is what the status keeps from one call to the next.
type record struct {
	State     string `json:"state"`
	Instance  string `json:"serviceInstanceID,omitempty"`
	Binding   string `json:"serviceBindingID,omitempty"`
	Backup    string `json:"backupID,omitempty"`
	BackupOf  string `json:"backupInstanceID,omitempty"`
	Service   string `json:"serviceID,omitempty"`
	Plan      string `json:"planID,omitempty"`
	Doing     string `json:"doing,omitempty"` // create, update, clean or delete: sent, not done
	Operation string `json:"operation,omitempty"`
	Until     string `json:"until,omitempty"` // the broker said 202; the operation counts as failed then
	Wanted    string `json:"wanted,omitempty"`
	Applied   string `json:"applied,omitempty"`
	Refused   string `json:"refused,omitempty"` // an order that fails again, as the broker says
	Anew      bool   `json:"anew,omitempty"`    // bound again, since the broker did not say the credentials
	Secret    *named `json:"secret,omitempty"`
}

type named struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
}

// A thing is an instance or a part of one that is being worked on.
type thing struct {
	u    *unstructured.Unstructured
	at   dynamic.ResourceInterface
	part string // of the API; empty for an instance
	record
}

// release lets the object go.
func (t *thing) release(ctx context.Context) error {
	t.u.SetFinalizers(slices.DeleteFunc(t.u.GetFinalizers(), func(f string) bool { return f == Finalizer }))
	return ignoreGone(t.update(ctx))
}

func (t *thing) update(ctx context.Context) error {
	u, err := t.at.Update(ctx, t.u, metav1.UpdateOptions{FieldManager: "servicebroker"})
	if err == nil {
		t.u = u
	}
	return err
}

// tell writes the record and the reason, unless they stand there already.
func (c *Controller) tell(ctx context.Context, t *thing, reason, message string) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&t.record)
	if err != nil {
		return err
	}
	fits := metav1.ConditionTrue
	if reason == "BrokerError" || reason == "PlanNotUpdateable" || t.State == "Failed" {
		fits = metav1.ConditionFalse
	}
	ready := metav1.ConditionFalse
	if slices.Contains([]string{"Running", "Created", "Completed"}, t.State) {
		ready = metav1.ConditionTrue
	}
	status := map[string]any{"managed": content, "conditions": []any{
		condition(t.u, "Ready", ready, reason, message), condition(t.u, "Synced", fits, reason, message),
	}}
	if equality.Semantic.DeepEqual(t.u.Object["status"], status) {
		return nil
	}
	next := t.u.DeepCopy()
	next.Object["status"] = status
	u, err := t.at.UpdateStatus(ctx, next, metav1.UpdateOptions{FieldManager: "servicebroker"})
	if err != nil {
		return ignoreGone(err)
	}
	t.u = u
	return nil
}

// message is the one that stands in the status now.
func (t *thing) message() string {
	all, _, _ := unstructured.NestedSlice(t.u.Object, "status", "conditions")
	for _, one := range all {
		if m, ok := one.(map[string]any); ok && m["type"] == "Synced" && m["message"] != nil {
			return fmt.Sprint(m["message"])
		}
	}
	return ""
}

func condition(u *unstructured.Unstructured, kind string, status metav1.ConditionStatus, reason, message string) map[string]any {
	since := time.Now().UTC().Format(time.RFC3339)
	all, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, one := range all {
		if m, ok := one.(map[string]any); ok && m["type"] == kind && m["status"] == string(status) {
			since = fmt.Sprint(m["lastTransitionTime"])
		}
	}
	return map[string]any{
		"type": kind, "status": string(status), "reason": reason, "message": message,
		"lastTransitionTime": since, "observedGeneration": u.GetGeneration(),
	}
}

func text(u *unstructured.Unstructured, path ...string) string {
	s, _, _ := unstructured.NestedString(u.Object, path...)
	return s
}

func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// request is what the broker is asked for a thing of a cluster.
func (t *thing) request(cluster string) osb.Request {
	parameters, _, _ := unstructured.NestedMap(t.u.Object, "spec", "parameters")
	return osb.Request{
		Instance: t.Instance, Part: t.part, ID: string(t.u.GetUID()), Service: t.Service, Plan: t.Plan,
		Backup: t.Backup, BackupOf: t.BackupOf, Parameters: parameters,
		Context:  map[string]any{"platform": "kubernetes", "clusterid": cluster, "namespace": t.u.GetNamespace(), "instance_name": t.u.GetName()},
		Identity: map[string]any{"username": "klutch:" + t.u.GetNamespace(), "uid": string(t.u.GetUID()), "groups": []string{}, "extra": map[string]any{}},
	}
}
