// SPDX-License-Identifier: Apache-2.0

// Package servicebroker carries out the claims of examples/catalog with a service broker,
// by the Open Service Broker API and, for backups, by actions of the same form.
//
//	c := servicebroker.Controller{Broker: broker, Client: client}
//	err := c.Run(ctx) // blocks until ctx is done
//
// An object's UID is its ID at the broker, and its status says which call was sent
// last, so that another process finds its way after a crash: each call is repeated until
// its answer is known.
package servicebroker

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/klutch-go/sdk/examples/servicebroker/osb"
)

// Reconcile takes the object some steps further. It returns when to look again, zero
// when the object is at rest, and the error with which it is to be tried again.
func (c *Controller) Reconcile(ctx context.Context, gvr schema.GroupVersionResource, namespace, name string) (time.Duration, error) {
	at := c.Client.Resource(gvr).Namespace(namespace)
	u, err := at.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return 0, ignoreGone(err)
	}
	t := &thing{u: u, at: at, part: parts[gvr.Resource]}
	managed, _, _ := unstructured.NestedMap(u.Object, "status", "managed")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(managed, &t.record); err != nil {
		return 0, err
	}
	for range 8 { // each step is a call and the note of its answer
		if t.u.GetDeletionTimestamp() != nil && !slices.Contains(t.u.GetFinalizers(), Finalizer) {
			return 0, nil
		}
		before := t.record
		again, err := c.step(ctx, t)
		switch e, told := errors.AsType[*osb.Error](err); {
		case told:
			if told := c.tell(ctx, t, "BrokerError", e.Error()); told != nil {
				return 0, told
			}
			return e.RetryAfter, err
		case err != nil || again > 0:
			return again, err
		case t.record == before:
			return 0, nil
		}
	}
	return time.Second, nil
}

// step makes one call, and notes what came of it.
func (c *Controller) step(ctx context.Context, t *thing) (time.Duration, error) {
	deleting := t.u.GetDeletionTimestamp() != nil
	if t.part == osb.Bindings && t.Instance != "" && t.Doing != "clean" && !deleting {
		if lost, err := c.lost(ctx, t); lost || err != nil {
			return 0, err
		}
	}
	switch {
	case !deleting && !slices.Contains(t.u.GetFinalizers(), Finalizer):
		t.u.SetFinalizers(append(t.u.GetFinalizers(), Finalizer))
		return 0, t.update(ctx)
	case deleting && (t.Instance == "" || t.part == osb.Restores): // nothing is kept for it
		return 0, t.release(ctx)
	case t.Instance == "":
		return c.identify(ctx, t)
	case deleting && t.Doing != "delete":
		return 0, c.remove(ctx, t)
	case t.Doing != "" && t.Until != "":
		return c.follow(ctx, t)
	case t.Doing != "":
		return 0, c.send(ctx, t)
	case t.Applied == "":
		return 0, c.create(ctx, t)
	case t.part == osb.Bindings:
		return 0, c.keepSecret(ctx, t)
	case t.part == "" && t.Applied == wanted(t.u): // also after an order that was refused and taken back
		return 0, c.tell(ctx, t, "Available", "")
	case t.part == "" && t.Refused != wanted(t.u):
		return 0, c.change(ctx, t)
	}
	return 0, nil
}

// lost takes back the credentials for an instance that is gone or going, or that another of
// its name has replaced: the broker deletes the binding, which begins anew after that.
func (c *Controller) lost(ctx context.Context, t *thing) (bool, error) {
	name := text(t.u, "spec", "instanceRef")
	u, err := c.Client.Resource(resource(text(t.u, "spec", "serviceInstanceType")+ofType)).Namespace(t.u.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if ignoreGone(err) != nil {
		return false, err
	}
	reason, message := "InstanceNotReady", "the instance "+name+" is gone, and its credentials go"
	switch {
	case err != nil:
	case u.GetDeletionTimestamp() != nil:
		message = "the instance " + name + " is being deleted, and its credentials go"
	case string(u.GetUID()) != t.Instance:
		reason, message = "InstanceReplaced", "the instance "+name+" is another one than the credentials were made for; new ones are made for it"
	default:
		return false, nil
	}
	t.Doing, t.Until, t.Operation, t.State, t.Applied, t.Secret = "clean", "", "", "Pending", "", nil
	return true, c.tell(ctx, t, reason, message)
}

// remove begins a deletion. That of an instance waits for its bindings, which the
// specification wants deleted first.
func (c *Controller) remove(ctx context.Context, t *thing) error {
	t.State = "Deleting"
	if t.part == "" {
		all, err := c.Client.Resource(resource("servicebindings")).Namespace(t.u.GetNamespace()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, b := range all.Items {
			if slices.Contains(b.GetFinalizers(), Finalizer) && text(&b, "status", "managed", "serviceInstanceID") == t.Instance {
				return c.tell(ctx, t, "Deleting", "waits until the credentials of the ServiceBinding "+b.GetName()+" are deleted at the broker")
			}
		}
	}
	t.Doing, t.Until, t.Operation = "delete", "", ""
	return c.tell(ctx, t, "Deleting", "")
}

// identify notes the IDs of a new object, before the broker hears of them.
func (c *Controller) identify(ctx context.Context, t *thing) (time.Duration, error) {
	if t.part == "" {
		service, plan, err := c.offered(ctx, t.u)
		if err != nil {
			return 0, err
		}
		t.Instance, t.Service, t.Plan, t.State = string(t.u.GetUID()), service.ID, plan, "Pending"
		return 0, c.tell(ctx, t, "Creating", "")
	}
	kind, name := text(t.u, "spec", "serviceInstanceType"), text(t.u, "spec", "instanceRef")
	if !slices.Contains(c.Types, kind) {
		t.State = "Failed"
		return 0, c.tell(ctx, t, "ServiceNotOffered", "serviceInstanceType "+kind+" is not on offer")
	}
	var backup record
	if t.part == osb.Restores {
		b, err := c.made(ctx, t, "backups", text(t.u, "spec", "backupRef"), &backup)
		if err != nil || b == nil {
			return 0, err
		}
		name = cmp.Or(name, text(b, "spec", "instanceRef"))
	}
	var instance record
	i, err := c.made(ctx, t, kind+ofType, name, &instance)
	if err != nil || i == nil {
		return 0, err
	}
	if has, err := c.has(ctx, instance, t.part); err != nil {
		return 0, err
	} else if !has {
		t.State = "Failed"
		return resync, c.tell(ctx, t, "ActionNotOffered", fmt.Sprintf("the broker makes no %s of %s: delete this %s, "+
			"and ask the platform team for a service that has them", strings.TrimPrefix(t.part, "service_"), text(i, "spec", "service"), t.u.GetKind()))
	}
	t.Instance, t.Service, t.Plan, t.State = instance.Instance, instance.Service, instance.Plan, "Pending"
	switch t.part {
	case osb.Bindings:
		t.Binding = string(t.u.GetUID())
	case osb.Backups:
		t.Backup = string(t.u.GetUID())
	case osb.Restores:
		t.Backup, t.BackupOf = backup.Backup, backup.Instance
	}
	return 0, c.tell(ctx, t, "Creating", "")
}

// made reads what the broker made for a claim that t needs; nil, and told, until it is there.
func (c *Controller) made(ctx context.Context, t *thing, resourceName, name string, into *record) (*unstructured.Unstructured, error) {
	u, err := c.Client.Resource(resource(resourceName)).Namespace(t.u.GetNamespace()).Get(ctx, name, metav1.GetOptions{})
	if ignoreGone(err) != nil {
		return nil, err
	}
	if err == nil && u.GetDeletionTimestamp() == nil && text(u, "status", "managed", "applied") != "" {
		managed, _, _ := unstructured.NestedMap(u.Object, "status", "managed")
		return u, runtime.DefaultUnstructuredConverter.FromUnstructured(managed, into)
	}
	t.State = "Pending"
	if resourceName == "backups" {
		return nil, c.tell(ctx, t, "BackupNotReady", "there is no completed Backup "+name)
	}
	return nil, c.tell(ctx, t, "InstanceNotReady", "the instance "+name+" is not running")
}

// has reports whether an instance has such parts.
func (c *Controller) has(ctx context.Context, instance record, part string) (bool, error) {
	if slices.Contains(c.Actions, part) {
		return true, nil
	}
	services, err := c.Broker.Catalog(ctx)
	return slices.ContainsFunc(services, func(s osb.Service) bool { return s.ID == instance.Service && s.Has(instance.Plan, part) }), err
}

// offered returns an instance's service and the ID of its plan in the broker's catalogue.
func (c *Controller) offered(ctx context.Context, u *unstructured.Unstructured) (service osb.Service, plan string, err error) {
	services, err := c.Broker.Catalog(ctx)
	if err != nil {
		return service, "", err
	}
	for _, s := range services {
		for _, p := range s.Plans {
			if s.Name == text(u, "spec", "service") && p.Name == text(u, "spec", "plan") {
				return s, p.ID, nil
			}
		}
	}
	return service, "", &osb.Error{Description: "the broker does not offer this service with this plan"}
}

// create begins a creation, with the plan as it is ordered now.
func (c *Controller) create(ctx context.Context, t *thing) (err error) {
	if t.part == "" {
		var service osb.Service
		if service, t.Plan, err = c.offered(ctx, t.u); err != nil {
			return err
		}
		t.Service = service.ID
	}
	t.Doing, t.State, t.Wanted = "create", "Pending", wanted(t.u)
	return c.tell(ctx, t, "Creating", t.message())
}

// change begins an update. The plan is noted with the answer: until then the old one is true.
func (c *Controller) change(ctx context.Context, t *thing) error {
	service, plan, err := c.offered(ctx, t.u)
	if err != nil {
		return err
	}
	if plan != t.Plan && !service.Updateable(t.Plan) {
		return c.tell(ctx, t, "PlanNotUpdateable", "the broker changes no plans of this service: go back to the plan before, or order another instance")
	}
	t.Doing, t.Wanted, t.Refused = "update", wanted(t.u), ""
	return c.tell(ctx, t, "Updating", "")
}

// send makes the call that is noted, perhaps again.
func (c *Controller) send(ctx context.Context, t *thing) error {
	var answer osb.Answer
	var err error
	r := t.request(c.Cluster)
	switch {
	case t.Doing == "delete" || t.Doing == "clean":
		if t.part == osb.Bindings { // no application is to use what is about to go
			err = c.removeSecret(ctx, t, secretName(t.u))
		}
		if err == nil {
			answer, err = c.Broker.Delete(ctx, r)
		}
	case t.Doing == "update":
		r.PreviousPlan = t.Plan
		if _, r.Plan, err = c.offered(ctx, t.u); err == nil {
			answer, err = c.Broker.Update(ctx, r)
		}
	case t.part != "":
		answer, err = c.Broker.Make(ctx, r)
	default:
		answer, err = c.Broker.Provision(ctx, r)
	}
	e, refused := errors.AsType[*osb.Error](err)
	switch {
	case refused && t.Doing == "create" && e.Orphan && t.part != osb.Restores: // those it repeats: the ID has them done once
		t.Doing = "clean"
		return errors.Join(c.tell(ctx, t, "BrokerError", e.Error()), err)
	case refused && t.Doing == "create" && t.part == "" && e.Status == http.StatusConflict:
		t.Doing, t.Applied = "", "other" // it is there with what was ordered before
		return c.tell(ctx, t, "Updating", "")
	case refused && t.Doing == "update" && (e.Final || e.Unusable):
		t.Doing = ""
		return c.failed(ctx, t, wanted(t.u), e)
	case refused && (t.Doing == "update" || t.Doing == "create") && e.Code != "ConcurrencyError" && e.Status/100 == 4:
		t.Doing = "" // it is as it was, and the order may be mended
		return errors.Join(c.tell(ctx, t, "BrokerError", e.Error()), err)
	case err != nil:
		return err
	case !answer.Done:
		if t.Until, err = c.until(ctx, t); err != nil {
			return err // the call is made again, and answered again
		}
		t.Operation = answer.Operation
		return c.tell(ctx, t, "InProgress", answer.Description)
	}
	return c.done(ctx, t, answer)
}

// until returns when an operation that begins now counts as failed.
func (c *Controller) until(ctx context.Context, t *thing) (string, error) {
	seconds := int(polling / time.Second)
	services, err := c.Broker.Catalog(ctx)
	for _, s := range services {
		for _, p := range s.Plans {
			if s.ID == t.Service && p.ID == t.Plan && p.MaximumPollingDuration > 0 {
				seconds = min(seconds, p.MaximumPollingDuration)
			}
		}
	}
	return time.Now().Add(time.Duration(seconds) * time.Second).UTC().Format(time.RFC3339), err
}

// follow asks how an operation goes on.
func (c *Controller) follow(ctx context.Context, t *thing) (time.Duration, error) {
	answer, err := c.Broker.LastOperation(ctx, t.request(c.Cluster), t.Operation)
	if answer.Gone && t.Doing != "delete" && t.Doing != "clean" {
		err = &osb.Error{Status: http.StatusGone, Description: "the broker does not know what it is doing"}
	}
	ended := err == nil && (answer.Gone || answer.State == "succeeded" || answer.State == "failed")
	if until, bad := time.Parse(time.RFC3339, t.Until); !ended && (bad != nil || time.Now().After(until)) {
		answer, err = osb.Answer{State: "failed", Description: "it took longer than its plan allows"}, nil
	}
	if err != nil { // which says nothing of the operation
		return 0, err
	}
	again := cmp.Or(answer.RetryAfter, c.Pause, poll)
	switch {
	case answer.State == "failed" && t.part == osb.Restores: // it may have overwritten something
		t.Doing, t.Until, t.Operation, t.Applied, t.State = "", "", "", "failed", "Failed"
		return 0, c.tell(ctx, t, "RestoreFailed", strings.TrimSpace("the broker says that it failed; make another Restore to try again: "+answer.Description))
	case answer.State == "failed" && t.Doing == "create":
		t.Doing, t.Until, t.Operation = "clean", "", ""
	case answer.Gone || answer.State == "succeeded":
		return 0, c.done(ctx, t, answer)
	case answer.State == "failed" && t.Doing == "update":
		t.Doing, t.Until, t.Operation = "", "", ""
		return 0, c.failed(ctx, t, t.Wanted, &osb.Error{Description: "the broker says that it failed: " + answer.Description, Failure: answer.Failure})
	case answer.State == "failed": // a deletion is asked for again
		t.Until, t.Operation = "", ""
	default:
		return again, c.tell(ctx, t, "InProgress", answer.Description)
	}
	failed := &osb.Error{Description: "the broker says that it failed: " + answer.Description}
	return 0, errors.Join(c.tell(ctx, t, "BrokerError", failed.Error()), failed)
}

// failed notes what the broker says beside that an update failed: an order that will fail again
// waits until it is changed, and an instance that cannot be used is not ready until one succeeds.
func (c *Controller) failed(ctx context.Context, t *thing, order string, e *osb.Error) error {
	if e.Unusable {
		t.State, t.Applied = "Failed", "other"
	}
	if e.Final {
		t.Refused = order
		return c.tell(ctx, t, "BrokerError", e.Error())
	}
	return errors.Join(c.tell(ctx, t, "BrokerError", e.Error()), e)
}

// done notes the end of what was being done.
func (c *Controller) done(ctx context.Context, t *thing, answer osb.Answer) error {
	doing := t.Doing
	t.Doing, t.Until, t.Operation = "", "", ""
	switch {
	case doing == "delete":
		return t.release(ctx)
	case doing == "clean":
		if t.Applied, t.State = "", "Pending"; t.part != "" { // the instance may be another one by now
			t.record = record{State: t.State, Anew: t.Anew}
		}
		return c.tell(ctx, t, "Retrying", t.message())
	case t.part == osb.Backups || t.part == osb.Restores:
		t.Applied, t.State = "done", "Completed"
		return c.tell(ctx, t, "Available", "")
	case t.part == osb.Bindings:
		return c.bound(ctx, t, answer)
	case doing == "update":
		service, plan, err := c.offered(ctx, t.u)
		if err != nil {
			return err
		}
		if t.Wanted == wanted(t.u) {
			t.Service, t.Plan = service.ID, plan
		}
	}
	t.Applied, t.State = t.Wanted, "Running"
	return c.tell(ctx, t, "Available", "")
}

// wanted is the digest of what an instance's owner can change.
func wanted(u *unstructured.Unstructured) string {
	parameters, _, _ := unstructured.NestedMap(u.Object, "spec", "parameters")
	text, _ := json.Marshal([]any{text(u, "spec", "service"), text(u, "spec", "plan"), parameters}) // it came as JSON
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:8])
}
