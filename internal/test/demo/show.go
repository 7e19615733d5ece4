// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/klutch-go/sdk/examples/catalog"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/stack"
)

const (
	namespace = "shop" // of the developer, in the App Cluster
	second    = "archive"
	disk      = "orders-state" // in the Control Plane Cluster
	hold      = "example.org/hold"
)

var (
	instances = resource("postgresqlinstances")
	bindings  = resource("servicebindings")
	backups   = resource("backups")
	restores  = resource("restores")

	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

	services = []string{"postgresqlinstances.anynines.com", "servicebindings.anynines.com", "backups.anynines.com", "restores.anynines.com"}
)

func resource(name string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "anynines.com", Version: "v1", Resource: name}
}

// A show is the story, step by step.
type show struct {
	s *stack.Stack
	p *printer
	// mirror is the service namespace: the mirror of namespace.
	mirror string
	served bool // there is PostgreSQL
	// database is there after credentials, if it is served.
	database database
}

func (d *show) all(ctx context.Context) error {
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"The owner of the App Cluster binds four data services: kubectl bind, with a login at the issuer.", d.bind},
		{"A developer orders an instance with a YAML file.", d.order},
		{"The developer asks for credentials.", d.credentials},
		{"A backup, a mishap, and a restore.", d.backup},
		{"The instance has outgrown its plan.", d.grow},
		{"A plan that is smaller again is refused, by the App Cluster itself.", d.shrink},
		{"The application goes, and its credentials with it.", d.revoke},
		{"The instance is deleted: the claim stays until it is really gone.", d.remove},
	} {
		d.p.text("")
		d.p.step(step.what)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimRight(step.what, "."), err)
		}
	}
	d.p.text("")
	d.p.step("That was the whole journey.")
	return nil
}

func (d *show) bind(ctx context.Context) error {
	var args []string
	for _, s := range services {
		args = append(args, "--service", s)
	}
	done := d.p.waiting(appCluster, "kubectl bind installs the APIs")
	out := d.s.Bind(ctx, stack.Developer, args...)
	done()
	d.p.quote(out.Stderr + out.Stdout)
	if out.Code != 0 {
		return fmt.Errorf("kubectl bind ended with exit code %d", out.Code)
	}
	for _, s := range services {
		_, err := d.see(ctx, d.app(stack.CRDs, "", s), "serves "+s, stack.True("Established"))
		if err != nil {
			return err
		}
	}
	return stack.Apply(ctx, d.s.App, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": namespace},
	}})
}

func (d *show) order(ctx context.Context) error {
	if err := d.claim(ctx, "PostgresqlInstance", ""); err != nil {
		return err
	}
	if err := d.findMirror(ctx); err != nil {
		return err
	}
	if _, err := d.see(ctx, d.control(instances, "orders"), "orders has arrived", stack.There); err != nil {
		return err
	}
	return d.seeState(ctx, instances, "orders", "Running")
}

func (d *show) credentials(ctx context.Context) error {
	if err := d.claim(ctx, "ServiceBinding", ""); err != nil {
		return err
	}
	u, err := d.control(bindings, "orders-api").Await(ctx, patience, func(u *unstructured.Unstructured) bool {
		return secretName(u) != ""
	})
	if err != nil {
		return err
	}
	name := secretName(u)
	if _, err := d.see(ctx, d.control(secrets, name), "Secret "+name+" made by the automation", stack.There); err != nil {
		return err
	}
	secret, err := d.see(ctx, d.app(secrets, namespace, name), "Secret "+name+" has arrived beside the claim", stack.There)
	if err != nil {
		return err
	}
	data, _, _ := unstructured.NestedMap(secret.Object, "data")
	d.p.line(appCluster, "its keys: %s", strings.Join(slices.Sorted(maps.Keys(data)), ", "))
	if !d.served {
		return nil
	}
	d.p.line(appCluster, "URI=$(kubectl -n %s get secret %s -o go-template='{{.data.uri | base64decode}}')", namespace, name)
	d.database.p = d.p
	d.database.uri, err = uriOf(secret)
	return err
}

// backup backs up what the instance holds, loses it, and restores it.
func (d *show) backup(ctx context.Context) error {
	if d.served {
		return d.rows(ctx)
	}
	if err := d.write(ctx, "orders 1 to 3"); err != nil {
		return err
	}
	if err := d.backedUp(ctx); err != nil {
		return err
	}
	if err := d.write(ctx, "garbage"); err != nil {
		return err
	}
	if err := d.restored(ctx); err != nil {
		return err
	}
	_, err := d.see(ctx, d.control(configMaps, disk), `the page says "orders 1 to 3" again`, stack.Field("orders 1 to 3", "data", "contents"))
	return err
}

// rows writes rows, loses them and gets them back from a backup.
func (d *show) rows(ctx context.Context) error {
	const ask = "SELECT * FROM orders ORDER BY id"
	if _, err := d.database.run(ctx, "CREATE TABLE orders (id int PRIMARY KEY, item text); INSERT INTO orders VALUES (1, 'tea'), (2, 'milk'), (3, 'biscuits')"); err != nil {
		return err
	}
	if err := d.database.want(ctx, ask, "(3 rows)"); err != nil {
		return err
	}
	if err := d.backedUp(ctx); err != nil {
		return err
	}
	if _, err := d.database.run(ctx, "DELETE FROM orders"); err != nil {
		return err
	}
	if err := d.database.want(ctx, ask, "(0 rows)"); err != nil {
		return err
	}
	if err := d.restored(ctx); err != nil {
		return err
	}
	return d.database.want(ctx, ask, "(3 rows)")
}

func (d *show) backedUp(ctx context.Context) error {
	if err := d.claim(ctx, "Backup", ""); err != nil {
		return err
	}
	return d.seeState(ctx, backups, "orders-before-migration", "Completed")
}

func (d *show) restored(ctx context.Context) error {
	if err := d.claim(ctx, "Restore", ""); err != nil {
		return err
	}
	return d.seeState(ctx, restores, "orders-undo-migration", "Completed")
}

// write puts contents onto the page.
func (d *show) write(ctx context.Context, contents string) error {
	c, err := d.control(configMaps, disk).Client()
	if err != nil {
		return err
	}
	if _, err := c.Patch(ctx, disk, types.MergePatchType, fmt.Appendf(nil, `{"data":{"contents":%q}}`, contents), metav1.PatchOptions{}); err != nil {
		return err
	}
	d.p.line(controlPlane, "the application writes %q onto the page", contents)
	return nil
}

func (d *show) grow(ctx context.Context) error {
	if d.served {
		if err := d.database.want(ctx, "SHOW shared_buffers", "16MB"); err != nil {
			return err
		}
	}
	const plan = "postgresql-single-big"
	if err := d.patchSpec(ctx, fmt.Sprintf(`{"plan":%q,"parameters":{"maxConnections":400}}`, plan)); err != nil {
		return err
	}
	d.p.line(appCluster, "kubectl patch postgresqlinstance orders: plan %s, maxConnections 400", plan)
	_, err := d.see(ctx, d.control(instances, "orders"), "orders has plan "+plan, stack.Field(plan, "spec", "plan"))
	if err != nil {
		return err
	}
	if _, err := d.see(ctx, d.app(instances, namespace, "orders"), "orders runs with plan "+plan, stack.Field(plan, "status", "managed", "plan")); err != nil || !d.served {
		return err
	}
	return d.grown(ctx)
}

// grown asks the server itself for what its plan changed.
func (d *show) grown(ctx context.Context) error {
	if err := d.database.awaitStart(ctx); err != nil {
		return err
	}
	if err := d.database.want(ctx, "SHOW max_connections", "400"); err != nil {
		return err
	}
	return d.database.want(ctx, "SHOW shared_buffers", "128MB")
}

func (d *show) shrink(ctx context.Context) error {
	err := d.patchSpec(ctx, `{"plan":"postgresql-single-nano"}`)
	if err == nil {
		return fmt.Errorf("the App Cluster took a smaller plan")
	}
	d.p.line(appCluster, "%s", err)
	return nil
}

// revoke deletes the binding: its password stops working.
func (d *show) revoke(ctx context.Context) error {
	const name = "orders-api"
	c, err := d.app(bindings, namespace, name).Client()
	if err != nil {
		return err
	}
	if err := c.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	d.p.line(appCluster, "kubectl delete servicebinding %s", name)
	if _, err := d.see(ctx, d.app(bindings, namespace, name), name+" is gone", stack.Gone); err != nil {
		return err
	}
	if _, err := d.see(ctx, d.app(secrets, namespace, name+"-service-binding"), "its Secret is gone, too", stack.Gone); err != nil || !d.served {
		return err
	}
	out, err := d.database.run(ctx, "SELECT 1")
	if err == nil || !strings.Contains(out, "authentication failed") {
		return fmt.Errorf("the old password was not refused: %w", err)
	}
	return nil
}

// remove deletes the instance, whose disk is held for a while. Another instance
// stays, for those who want to try things.
func (d *show) remove(ctx context.Context) error {
	if err := d.claim(ctx, "PostgresqlInstance", second); err != nil {
		return err
	}
	if err := d.seeState(ctx, instances, second, "Running"); err != nil {
		return err
	}
	if err := d.hold(ctx, hold); err != nil {
		return err
	}
	d.p.line(controlPlane, "the platform team holds the disk of orders (finalizer %s)", hold)
	claim := d.app(instances, namespace, "orders")
	c, err := claim.Client()
	if err != nil {
		return err
	}
	if err := c.Delete(ctx, "orders", metav1.DeleteOptions{}); err != nil {
		return err
	}
	d.p.line(appCluster, "kubectl delete postgresqlinstance orders")
	if _, err := d.see(ctx, d.control(instances, "orders"), "orders is being deprovisioned", deleting); err != nil {
		return err
	}
	if _, err := d.see(ctx, claim, "orders waits for it", deleting); err != nil {
		return err
	}
	return d.removeInOrder(ctx, claim)
}

// removeInOrder lets go of the disk and makes sure that the claim outlives the instance.
func (d *show) removeInOrder(ctx context.Context, claim stack.Object) error {
	if err := d.hold(ctx); err != nil {
		return err
	}
	d.p.line(controlPlane, "the platform team lets go")
	if _, err := d.see(ctx, d.control(instances, "orders"), "orders is gone", stack.Gone); err != nil {
		return err
	}
	_, err := d.see(ctx, claim, "orders is gone, too", stack.Gone)
	return err
}

// hold makes finalizers those of the database's disk, besides none.
func (d *show) hold(ctx context.Context, finalizers ...string) error {
	c, err := d.control(configMaps, disk).Client()
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": finalizers}})
	if err != nil {
		return err
	}
	_, err = c.Patch(ctx, disk, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

func deleting(u *unstructured.Unstructured) bool { return u != nil && u.GetDeletionTimestamp() != nil }

// claim applies the sample claim of a kind, if asked under another name.
func (d *show) claim(ctx context.Context, kind, name string) error {
	i := slices.IndexFunc(catalog.Claims(), func(u *unstructured.Unstructured) bool { return u.GetKind() == kind })
	if i < 0 {
		return fmt.Errorf("the catalogue has no claim of kind %s", kind)
	}
	u := catalog.Claims()[i]
	u.SetNamespace(namespace)
	if name != "" {
		u.SetName(name)
	}
	if err := stack.Apply(ctx, d.s.App, u); err != nil {
		return err
	}
	d.p.line(appCluster, "kubectl apply: %s %s/%s", kind, namespace, u.GetName())
	return nil
}

func (d *show) patchSpec(ctx context.Context, spec string) error {
	c, err := d.app(instances, namespace, "orders").Client()
	if err != nil {
		return err
	}
	_, err = c.Patch(ctx, "orders", types.MergePatchType, []byte(`{"spec":`+spec+`}`), metav1.PatchOptions{})
	return err
}

func (d *show) findMirror(ctx context.Context) (err error) {
	done := d.p.waiting(controlPlane, "a service namespace for "+namespace)
	defer done()
	if d.mirror, err = d.s.ServiceNamespace(ctx, namespace); err == nil {
		d.p.line(controlPlane, "service namespace %s", d.mirror)
	}
	return err
}

// seeState waits for a managed state on both sides, the Control Plane Cluster first.
func (d *show) seeState(ctx context.Context, gvr schema.GroupVersionResource, name, state string) error {
	running := stack.Field(state, "status", "managed", "state")
	if _, err := d.see(ctx, d.control(gvr, name), name+" is "+state, running); err != nil {
		return err
	}
	_, err := d.see(ctx, d.app(gvr, namespace, name), name+" says "+state, running)
	return err
}

// see waits until a condition holds, and says so.
func (d *show) see(ctx context.Context, o stack.Object, what string, cond stack.Condition) (*unstructured.Unstructured, error) {
	where := appCluster
	if o.Cluster == d.s.Control {
		where = controlPlane
	}
	begin, done := time.Now(), d.p.waiting(where, what)
	u, err := o.Await(ctx, patience, cond)
	done()
	if err != nil {
		return nil, err
	}
	d.p.line(where, "%-64s %6d ms", what, time.Since(begin).Milliseconds())
	return u, nil
}

func (d *show) app(gvr schema.GroupVersionResource, namespace, name string) stack.Object {
	return object(d.s.App, gvr, namespace, name)
}

func (d *show) control(gvr schema.GroupVersionResource, name string) stack.Object {
	return object(d.s.Control, gvr, d.mirror, name)
}

func object(c *cluster.Cluster, gvr schema.GroupVersionResource, namespace, name string) stack.Object {
	return stack.Object{Cluster: c, Resource: gvr, Namespace: namespace, Name: name}
}

func secretName(u *unstructured.Unstructured) string {
	if u == nil {
		return ""
	}
	name, _, _ := unstructured.NestedString(u.Object, "status", "managed", "secret", "name")
	return name
}
