// SPDX-License-Identifier: Apache-2.0

package bind

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/bind/internal/behind"
	"github.com/klutch-go/sdk/bind/internal/cluster"
	"github.com/klutch-go/sdk/bind/internal/doctor"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// A Finding is what one check of [Doctor] has found.
type Finding struct {
	Check   string `json:"check"`           // app-cluster, template, rights, konnector, secret, token, control-plane, heartbeat, binding, claims or objects; of Takeover fields, crd, copies and tenant too
	About   string `json:"about,omitempty"` // an address, a Secret, a binding, a template
	OK      bool   `json:"ok"`
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"` // what to do about it

	Objects []string `json:"objects,omitempty"` // of Takeover, each with what becomes of it
}

// Doctor checks what bindings need, and changes nothing: the App Cluster, the right to
// bind more, the konnector, each kubeconfig Secret and where it leads, each binding and
// its objects. In a Control Plane Cluster it checks each template that the person may list.
// What makes no sense because of what was found before, or where nothing is bound and
// templates are, is left out. Now is the time that ages are measured by.
func Doctor(ctx context.Context, config *rest.Config, now time.Time) []Finding {
	var found []Finding
	for _, f := range doctor.Check(ctx, config, now) {
		found = append(found, Finding(f))
	}
	return found
}

// Takeover says beforehand what would happen, object by object, if this konnector, of which the
// manifests are, took the place of Klutch's: its fields, the kubeconfig Secrets, and of each
// binding the CRD, the rights, the objects and the copies. In a Control Plane Cluster it says what
// would become of each tenant of Klutch's backend if this platform's adopted it. Nothing is changed. What is not OK
// stays as it is, or needs a hand.
func Takeover(ctx context.Context, config *rest.Config, now time.Time, manifests []*unstructured.Unstructured) []Finding {
	var found []Finding
	for _, f := range doctor.Takeover(ctx, config, now, manifests) {
		found = append(found, Finding(f))
	}
	return found
}

// OutOfStep is how many objects of a binding were not in step when the konnector last
// said so, in the condition ObjectsSynced.
func OutOfStep(b v1alpha1.APIServiceBinding) int {
	return behind.Count(v1alpha1.FindCondition(b.Status.Conditions, v1alpha1.ConditionObjectsSynced))
}

// An Object is one of a bound API that is not in step.
type Object struct {
	Namespace, Name string
	Reason          string // a Reason of package sync, DeletionWaits or NotTakenUp
	Message         string
	Since           time.Time
}

// Objects are those of a binding that are not in step, the oldest first, as is written on
// the objects, or said in Events of those that the konnector may not write to. The first 10 000 of the binding are looked at; whole is false if there are more.
func Objects(ctx context.Context, config *rest.Config, binding string, now time.Time) (objects []Object, whole bool, err error) {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return nil, false, err
	}
	all, err := app.List(ctx)
	if err != nil {
		return nil, false, err
	}
	b := v1alpha1.APIServiceBinding{ObjectMeta: metav1.ObjectMeta{Name: binding}}
	for _, one := range all {
		if one.Name == binding {
			b = one
		}
	}
	crd, err := cluster.ReadCRD(ctx, app, binding)
	resource, served := cluster.ServedResource(crd)
	if err != nil || !served {
		return nil, err == nil, err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, false, err
	}
	found, err := behind.Look(ctx, behind.Cluster{Objects: client, Events: app}, &b, resource, now)
	if err != nil {
		return nil, false, fmt.Errorf("look at the objects of %s: %w", binding, err)
	}
	for _, o := range found.Behind {
		objects = append(objects, Object(o))
	}
	return objects, !found.Cut, nil
}

// A BoundObject is an object of a bound API.
type BoundObject struct {
	Binding         string
	Namespace, Name string
}

// Named are the objects of all bound APIs that have a name, as far as they may be listed: at most
// a hundred of each API.
func Named(ctx context.Context, config *rest.Config, name string) (found []BoundObject, err error) {
	app, bindings, err := openBound(ctx, config)
	if err != nil {
		return nil, err
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	for _, b := range bindings {
		crd, err := cluster.ReadCRD(ctx, app, b.Name)
		resource, served := cluster.ServedResource(crd)
		if err != nil || !served {
			continue
		}
		list, err := client.Resource(resource).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name, Limit: 100})
		for i := 0; err == nil && i < len(list.Items); i++ {
			if list.Items[i].Name == name {
				found = append(found, BoundObject{b.Name, list.Items[i].Namespace, name})
			}
		}
	}
	return found, nil
}

// KonnectorTrouble says what is wrong with the konnector of a cluster: by its Lease that it was
// stopped, or has died, by a platform that this has not heard it since the bind. Empty if nothing
// is, or nothing is known of it.
func KonnectorTrouble(ctx context.Context, config *rest.Config, now time.Time) string {
	if wrong := KonnectorSilence(ctx, config, now); wrong != "" {
		return wrong
	}
	all, err := List(ctx, config)
	if err != nil {
		return ""
	}
	return KonnectorUnheard(ctx, config, all)
}

// KonnectorSilence is KonnectorTrouble as far as the Lease goes: what bindings say is of the past.
func KonnectorSilence(ctx context.Context, config *rest.Config, now time.Time) string {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return ""
	}
	holder, wrong := doctor.Konnector(ctx, app, now)
	if !doctor.Silent(holder, wrong) {
		return ""
	}
	return wrong
}

// KonnectorClock is how far the clock here, which says now, is ahead of that of a konnector that is not
// silent, or behind it if negative; 0 where they agree by a minute, or nothing is known. A clock that is
// wrong makes wrong ages, and wrong words about tokens.
func KonnectorClock(ctx context.Context, config *rest.Config, now time.Time) time.Duration {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return 0
	}
	return doctor.Clock(ctx, app, now)
}

// KonnectorUnheard is KonnectorTrouble as far as the platforms of some bindings go.
func KonnectorUnheard(ctx context.Context, config *rest.Config, of []v1alpha1.APIServiceBinding) string {
	app, err := cluster.OpenApp(ctx, config)
	if err != nil {
		return ""
	}
	return doctor.Unheard(ctx, app, of)
}
