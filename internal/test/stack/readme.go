// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/klutch-go/sdk/internal/test/cluster"
)

// A Reader does what the README of a folder says, in a namespace of the App Cluster.
type Reader struct {
	Stack             *Stack
	Folder, Namespace string
}

// Commands returns the indented lines of the README: what its reader types.
func (r Reader) Commands() (lines []string, err error) {
	text, err := os.ReadFile(filepath.Join(r.Folder, "README.md"))
	for line := range strings.Lines(string(text)) {
		if command, ok := strings.CutPrefix(line, "    "); ok {
			lines = append(lines, strings.TrimSpace(command))
		}
	}
	return lines, err
}

// Type does what a kubectl command says, by the same requests.
func (r Reader) Type(ctx context.Context, line string) error {
	words := strings.Fields(line)
	if words[1] == "bind" { // the stack has a URL and a context of its own
		if out := r.Stack.Bind(ctx, Developer, words[5:]...); out.Code != 0 {
			return fmt.Errorf("%s: exit code %d\n%s%s", line, out.Code, out.Stdout, out.Stderr)
		}
		return nil
	}
	if len(words) < 5 || words[0] != "kubectl" || words[1] != "--context" {
		return fmt.Errorf("%q is not a command for the context app or control-plane", line)
	}
	c := map[string]*cluster.Cluster{"app": r.Stack.App, "control-plane": r.Stack.Control}[words[2]]
	namespace, words := r.Namespace, words[3:]
	if words[0] == "-n" {
		namespace, words = words[1], words[2:]
	}
	var err error
	switch verb, rest := words[0], words[1:]; {
	case verb == "apply" || verb == "delete":
		err = r.each(rest, func(u *unstructured.Unstructured) error {
			if c == r.Stack.App {
				u.SetNamespace(namespace)
			}
			if verb == "apply" {
				return Apply(ctx, c, u)
			}
			client, err := Object{Cluster: c, Resource: plural(u), Namespace: u.GetNamespace()}.Client()
			if err != nil {
				return err
			}
			return client.Delete(ctx, u.GetName(), metav1.DeleteOptions{})
		})
	case verb == "get" && rest[0] == "secret" && len(rest) == 2:
		_, err = Object{Cluster: c, Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Namespace: namespace, Name: rest[1]}.Await(ctx, patience, There)
	case verb == "create" && rest[0] == "rolebinding" && len(rest) == 4:
		err = Apply(ctx, c, roleBinding(namespace, rest[1], strings.TrimPrefix(rest[2], "--role="), strings.TrimPrefix(rest[3], "--group=")))
	default:
		return fmt.Errorf("nothing is known to do what %q says", line)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", line, err)
	}
	return nil
}

// each goes through the objects of the files and folders of -f.
func (r Reader) each(args []string, do func(*unstructured.Unstructured) error) error {
	for _, path := range args {
		if path == "-f" {
			continue
		}
		objects, err := Read(filepath.Join(r.Folder, path))
		if err != nil {
			return err
		}
		for _, u := range objects {
			if err := do(u); err != nil {
				return err
			}
		}
	}
	return nil
}

// Read returns the objects of a YAML file, or of those in a folder.
func Read(path string) (all []*unstructured.Unstructured, err error) {
	files := []string{path}
	if !strings.HasSuffix(path, ".yaml") {
		if files, err = filepath.Glob(filepath.Join(path, "*.yaml")); err != nil || len(files) == 0 {
			return nil, fmt.Errorf("%s: no YAML files: %w", path, err)
		}
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for document := range bytes.SplitSeq(data, []byte("\n---\n")) {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal(document, &u.Object); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			all = append(all, u)
		}
	}
	return all, nil
}

// plural guesses a resource, as the samples' kinds have plain plurals.
func plural(u *unstructured.Unstructured) schema.GroupVersionResource {
	gvk := u.GroupVersionKind()
	return gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
}

// Silent waits until the objects of these resources, in the namespace and in its mirror, have
// not been written for 5 s, and returns those that are written, made or deleted in the time after that.
func (r Reader) Silent(ctx context.Context, window time.Duration, resources ...schema.GroupVersionResource) (written []string, err error) {
	began := time.Now()
	settled, err := r.versions(ctx, resources)
	for quiet := time.Now(); err == nil && time.Since(quiet) < 5*time.Second; {
		var now map[string]string
		<-time.After(500 * time.Millisecond)
		if now, err = r.versions(ctx, resources); fmt.Sprint(now) != fmt.Sprint(settled) {
			settled, quiet = now, time.Now()
		}
		if err == nil && time.Since(began) > patience {
			err = errors.New("the claims do not come to rest")
		}
	}
	if err != nil {
		return nil, err
	}
	<-time.After(window) // the measurement
	now, err := r.versions(ctx, resources)
	return changed(settled, now), err
}

// changed tells of the objects whose versions differ; one that is not there has none.
func changed(before, after map[string]string) (all []string) {
	objects := maps.Clone(before)
	maps.Copy(objects, after)
	for _, object := range slices.Sorted(maps.Keys(objects)) {
		if before[object] != after[object] {
			all = append(all, fmt.Sprintf("%s: %s, then %s", object, cmp.Or(before[object], "none"), cmp.Or(after[object], "none")))
		}
	}
	return all
}

func (r Reader) versions(ctx context.Context, resources []schema.GroupVersionResource) (map[string]string, error) {
	mirror, err := r.Stack.ServiceNamespace(ctx, r.Namespace)
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, gvr := range resources {
		for _, o := range []Object{{Cluster: r.Stack.App, Resource: gvr, Namespace: r.Namespace}, {Cluster: r.Stack.Control, Resource: gvr, Namespace: mirror}} {
			client, err := o.Client()
			if err != nil {
				return nil, err
			}
			list, err := client.List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, err
			}
			for _, u := range list.Items {
				all[o.Cluster.Name()+" "+gvr.Resource+" "+u.GetName()] = u.GetResourceVersion()
			}
		}
	}
	return all, nil
}
