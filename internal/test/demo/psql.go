// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/internal/test/stack"
)

// uri of the database, from a Secret of the App Cluster.
func uriOf(secret *unstructured.Unstructured) (string, error) {
	data, _, _ := unstructured.NestedString(secret.Object, "data", "uri")
	uri, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(uri) == 0 {
		return "", fmt.Errorf("the Secret %s has no uri: %w", secret.GetName(), err)
	}
	return string(uri), nil
}

// sql runs a statement with the credentials of the App Cluster's Secret, and shows both.
func (d *show) sql(ctx context.Context, statement string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d.p.line(appCluster, `psql "$URI" -c "%s"`, statement)
	cmd := exec.CommandContext(ctx, "psql", "-X", "-c", statement)
	cmd.Env = append(os.Environ(), "PGSSLMODE=prefer", "PGCONNECT_TIMEOUT=10", "LC_ALL=C")
	cmd.Args = append(cmd.Args, d.uri)
	out, err := cmd.CombinedOutput()
	d.p.quote(string(out))
	return string(out), err
}

// wantSQL fails unless the answer has the text.
func (d *show) wantSQL(ctx context.Context, statement, want string) error {
	out, err := d.sql(ctx, statement)
	if err == nil && !strings.Contains(out, want) {
		err = fmt.Errorf("the answer has no %q", want)
	}
	return err
}

// rows writes rows, loses them and gets them back from a backup.
func (d *show) rows(ctx context.Context) error {
	const ask = "SELECT * FROM orders ORDER BY id"
	if _, err := d.sql(ctx, "CREATE TABLE orders (id int PRIMARY KEY, item text); INSERT INTO orders VALUES (1, 'tea'), (2, 'milk'), (3, 'biscuits')"); err != nil {
		return err
	}
	if err := d.wantSQL(ctx, ask, "(3 rows)"); err != nil {
		return err
	}
	if err := d.backedUp(ctx); err != nil {
		return err
	}
	if _, err := d.sql(ctx, "DELETE FROM orders"); err != nil {
		return err
	}
	if err := d.wantSQL(ctx, ask, "(0 rows)"); err != nil {
		return err
	}
	if err := d.restored(ctx); err != nil {
		return err
	}
	return d.wantSQL(ctx, ask, "(3 rows)")
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
	out, err := d.sql(ctx, "SELECT 1")
	if err == nil || !strings.Contains(out, "authentication failed") {
		return fmt.Errorf("the old password was not refused: %w", err)
	}
	return nil
}

// restarted waits until the server takes connections again, as applications do that connect
// anew when a plan restarts their database.
func (d *show) restarted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		cmd := exec.CommandContext(ctx, "psql", "-X", "-q", "-c", "SELECT 1", d.uri)
		cmd.Env = append(os.Environ(), "PGCONNECT_TIMEOUT=10", "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server does not come back: %w: %s", err, out)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// grown asks the server itself for what its plan changed.
func (d *show) grown(ctx context.Context) error {
	if err := d.restarted(ctx); err != nil {
		return err
	}
	if err := d.wantSQL(ctx, "SHOW max_connections", "400"); err != nil {
		return err
	}
	return d.wantSQL(ctx, "SHOW shared_buffers", "128MB")
}
