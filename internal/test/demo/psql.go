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

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/klutch-go/sdk/examples/catalog/engine"
)

// patience is how long anything may take.
const patience = 30 * time.Second

// A database is what the application has of the data service: a URI with credentials.
type database struct {
	p   *printer
	uri string // from the App Cluster's Secret
}

// uriOf is the URI of the database, from a Secret of the App Cluster.
func uriOf(secret *unstructured.Unstructured) (string, error) {
	data, _, _ := unstructured.NestedString(secret.Object, "data", "uri")
	uri, err := base64.StdEncoding.DecodeString(data)
	if err != nil || len(uri) == 0 {
		return "", fmt.Errorf("the Secret %s has no uri: %w", secret.GetName(), err)
	}
	return string(uri), nil
}

// run runs a statement and shows both it and its answer.
func (d *database) run(ctx context.Context, statement string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	d.p.line(appCluster, `psql "$URI" -c "%s"`, statement)
	cmd := exec.CommandContext(ctx, engine.Psql(), "-X", "-c", statement)
	cmd.Env = append(os.Environ(), "PGSSLMODE=prefer", "PGCONNECT_TIMEOUT=10", "LC_ALL=C")
	cmd.Args = append(cmd.Args, d.uri)
	out, err := cmd.CombinedOutput()
	d.p.quote(string(out))
	return string(out), err
}

// want fails unless the answer has the text.
func (d *database) want(ctx context.Context, statement, want string) error {
	out, err := d.run(ctx, statement)
	if err == nil && !strings.Contains(out, want) {
		err = fmt.Errorf("the answer has no %q", want)
	}
	return err
}

// awaitStart waits until the server takes connections again, as applications do that connect
// anew when a plan restarts their database.
func (d *database) awaitStart(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		cmd := exec.CommandContext(ctx, engine.Psql(), "-X", "-q", "-c", "SELECT 1", d.uri)
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
