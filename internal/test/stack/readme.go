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
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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

// backend is how READMEs call the backend.
const backend = "https://klutch.example.org"

// secret is what a command asks for that shows a Secret.
var secret = regexp.MustCompile(` --context app get secret (\S+)$`)

// Type has a shell do what a command says, in the README's folder: with kubectl and its plugin, the
// contexts app and control-plane, and a browser in which the developer logs in. A Secret that the
// command shows is waited for.
func (r Reader) Type(ctx context.Context, command string) (Output, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*patience)
	defer cancel()
	if asked := secret.FindStringSubmatch(command); asked != nil {
		o := Object{Cluster: r.Stack.App, Resource: schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, Namespace: r.Namespace, Name: asked[1]}
		if _, err := o.Await(ctx, patience, There); err != nil {
			return Output{}, fmt.Errorf("%s: %w", command, err)
		}
	}
	kubeconfig, err := r.kubeconfig()
	if err != nil {
		return Output{}, err
	}
	flags := []string{r.Stack.BackendURL, "--backend-certificate-authority", r.Stack.BackendCA, "--skip-konnector", "--no-browser", "--yes"}
	cmd := exec.CommandContext(ctx, "sh", "-c", strings.Replace(command, backend, strings.Join(flags, " "), 1)) //nolint:gosec // a command of our README
	cmd.Dir, cmd.WaitDelay = r.Folder, time.Second
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+filepath.Join(r.Stack.Dir, "kubectl-cache"),
		"PATH="+filepath.Join(r.Stack.Dir, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	out := r.Stack.run(cmd, OnURL(func(url string) { _, _ = r.Stack.Browser(Developer).Visit(ctx, url) })) // what goes wrong, the command tells
	if out.Code != 0 {
		return out, fmt.Errorf("%s: exit code %d\n%s%s", command, out.Code, out.Stdout, out.Stderr)
	}
	return out, nil
}

// Others returns the commands that begin in none of these ways.
func (r Reader) Others(beginnings ...string) ([]string, error) {
	commands, err := r.Commands()
	return slices.DeleteFunc(commands, func(command string) bool {
		return slices.ContainsFunc(beginnings, func(begin string) bool { return strings.HasPrefix(command, begin) })
	}), err
}

// kubeconfig is the path of one with the contexts app, in the Reader's namespace, and control-plane.
func (r Reader) kubeconfig() (path string, err error) {
	config := clientcmdapi.NewConfig()
	for name, c := range map[string]*cluster.Cluster{"app": r.Stack.App, "control-plane": r.Stack.Control} {
		one, err := clientcmd.LoadFromFile(c.Kubeconfig())
		if err == nil {
			err = clientcmd.ResolveLocalPaths(one)
		}
		if err != nil {
			return "", err
		}
		current := one.Contexts[one.CurrentContext]
		config.Clusters[name], config.AuthInfos[name] = one.Clusters[current.Cluster], one.AuthInfos[current.AuthInfo]
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	config.Contexts["app"].Namespace = r.Namespace
	path = filepath.Join(r.Stack.Dir, "reader-"+r.Namespace+".kubeconfig")
	return path, clientcmd.WriteToFile(*config, path)
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
