// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"

	"github.com/klutch-go/sdk/deploy"
	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/klutch/v1alpha1"
)

// elsewhere are commands that need more than a cluster, and which test runs them.
var elsewhere = map[string]string{
	"kubectl bind recover": "bind TestP35LostAppCluster",
}

const here = "deploy TestCommandsTwice"

// inline are the commands that sentences name, and which test runs them.
var inline = map[string]string{
	"kubectl bind status":                             here,
	"kubectl bind claims":                             here,
	"kubectl bind":                                    "cmd/kubectl-bind TestBind",
	"kubectl bind claims NAME":                        "cmd/kubectl-bind TestBind",
	"kubectl bind unbind":                             "cmd/kubectl-bind TestBind",
	"kubectl bind unbind API":                         "cmd/kubectl-bind TestBind",
	"kubectl bind --konnector-image":                  "cmd/kubectl-bind TestBindInstallsKonnector",
	"kubectl bind URL --konnector-image IMAGE":        "cmd/kubectl-bind TestBindInstallsKonnector",
	"kubectl bind konnector install --image IMAGE":    "cmd/kubectl-bind TestKonnector",
	"kubectl bind apiservice --dry-run=client":        "cmd/kubectl-bind TestGitOps",
	"kubectl bind claims API --adopt N":               "cmd/kubectl-bind TestAdoption",
	"kubectl bind services":                           "cmd/kubectl-bind TestServicesWithoutACluster",
	"kubectl bind repair":                             "cmd/kubectl-bind TestRepair",
	"kubectl bind rotate":                             "cmd/kubectl-bind TestP13Rotate",
	"kubectl bind recover":                            "bind TestP35LostAppCluster",
	"kubectl bind doctor":                             "cmd/kubectl-bind TestDoctor",
	"kubectl bind status NAME":                        "cmd/kubectl-bind TestManyNotInStep",
	"kubectl bind offer":                              "cmd/kubectl-bind TestOffer",
	"kubectl bind offer CRD":                          "cmd/kubectl-bind TestOffer",
	"kubectl bind doctor --takeover":                  "internal/test/pairings TestEstate",
	"kubectl bind https://bind.example.com --service": "internal/test/e2e TestJourney",
	"kubectl":          "", // a program
	"kubectl describe": "", // kubectl's own
}

// TestCommandsTwice runs each command of README.md and of the pages here, but for the ones that other
// tests run, on a real API server, twice: the second time succeeds as well, and writes nothing, which kubectl diff
// sees as well.
func TestCommandsTwice(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a real cluster")
	}
	if _, err := exec.LookPath("diff"); err != nil {
		t.Skip("needs diff")
	}
	c := cluster.ForTest(t, "commands")
	s := &shell{T: t, dir: workshop(t), cluster: c, dyn: dynamic.NewForConfigOrDie(c.Config())}
	n, compared := 0, 0
	for _, page := range append([]string{"../README.md"}, must(filepath.Glob("*.md"))...) {
		commands := commandsOf(t, page)
		if page == "FROM-KLUTCH.md" { // see overAndBack for the rest; TestEstate runs all of it
			commands = nil
			for _, command := range applied.FindAllString(string(must(os.ReadFile(page))), -1) {
				commands = append(commands, strings.Replace(command, "deploy/", "sdk/deploy/", 1))
			}
		}
		for _, command := range commands {
			if where, ok := s.leftTo(command); ok {
				t.Logf("%s: %s runs %s", page, where, command)
				continue
			}
			n++
			s.twice(page, command)
			if s.same(page, command) {
				compared++
			}
		}
	}
	if n < 8 || compared < 6 {
		t.Errorf("%d commands, %d of them compared", n, compared)
	}
	s.overAndBack()
	for _, u := range deploy.Konnector("example.com/konnector:v1") { // and another tool has no quarrel with them
		s.applyAs("kustomize-controller", u)
	}
}

// TestInlineCommands holds the list of the commands in sentences to the pages: each is run by a test
// that is there.
func TestInlineCommands(t *testing.T) {
	named := map[string]bool{}
	for _, page := range append([]string{"../README.md"}, must(filepath.Glob("*.md"))...) {
		for _, m := range sentence.FindAllStringSubmatch(string(must(os.ReadFile(page))), -1) {
			command, _, _ := strings.Cut(m[1], " postgresqlinstances")
			named[command] = true
			if _, ok := inline[command]; !ok {
				t.Errorf("%s: which test runs %q?", page, m[1])
			}
		}
	}
	for command, where := range inline {
		if !named[command] {
			t.Errorf("no page names %q", command)
		}
		dir, test, ok := strings.Cut(where, " ")
		if !ok {
			continue
		}
		files := must(filepath.Glob(filepath.Join("..", dir, "*_test.go")))
		if !slices.ContainsFunc(files, func(file string) bool { return strings.Contains(string(must(os.ReadFile(file))), "func "+test+"(") }) {
			t.Errorf("%s: %s has no %s", command, dir, test)
		}
	}
}

var (
	sentence = regexp.MustCompile("`((?:kubectl|sed)(?: [^`\n]*)?)`")
	fence    = regexp.MustCompile("(?s)```sh\n(.*?)```")
	indented = regexp.MustCompile(`(?m)^    ((?:kubectl|sed) .*)$`)
	applied  = regexp.MustCompile(`(?m)kubectl apply -k deploy/\S+$`)
	settings = regexp.MustCompile("(?s)```yaml\n( *# kustomization.yaml\n.*?)```")
)

// commandsOf are the commands of a page for kubectl, in its order: those of its blocks, and then those
// in its sentences that need no more than a cluster.
func commandsOf(t *testing.T, page string) (commands []string) {
	t.Helper()
	text := string(must(os.ReadFile(page)))
	for _, b := range fence.FindAllStringSubmatch(text, -1) {
		text = strings.Replace(text, b[0], "\n    "+strings.ReplaceAll(strings.ReplaceAll(b[1], "\n   ", "\n"), "\n", "\n    "), 1)
	}
	for _, m := range indented.FindAllStringSubmatch(regexp.MustCompile(`(?m)^ +(kubectl|sed) `).ReplaceAllString(text, "    $1 "), -1) {
		commands = append(commands, m[1])
	}
	for _, m := range sentence.FindAllStringSubmatch(text, -1) {
		if inline[m[1]] == here && !slices.Contains(commands, m[1]) {
			commands = append(commands, m[1])
		}
	}
	return commands
}

// A shell runs commands in a folder that is as the pages want it.
type shell struct {
	*testing.T
	dir     string
	cluster *cluster.Cluster
	dyn     dynamic.Interface
}

// workshop makes the folder: a checkout, the settings, certificates, kubectl and kubectl-bind.
func workshop(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	check(t, os.Symlink(must(filepath.Abs("..")), filepath.Join(dir, "sdk")))
	block := settings.FindStringSubmatch(string(must(os.ReadFile("README.md"))))
	if block == nil {
		t.Fatal("README.md has no kustomization.yaml")
	}
	cert, key := certificate()
	for name, text := range map[string]string{
		"kustomization.yaml": strings.ReplaceAll(block[1], "\n   ", "\n"), "client-secret": "s3cr3t", "tls.crt": cert, "tls.key": key,
	} {
		check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	bin := filepath.Join(dir, "bin")
	check(t, os.Mkdir(bin, 0o700))
	check(t, cluster.Kubectl(t.Context(), bin))
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(bin, "kubectl-bind"), "github.com/klutch-go/sdk/cmd/kubectl-bind").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func certificate() (cert, key string) {
	private := must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"bind.example.com"}}
	der := must(x509.CreateCertificate(rand.Reader, template, template, private.Public(), private))
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: must(x509.MarshalPKCS8PrivateKey(private))}))
}

func (s *shell) leftTo(command string) (string, bool) {
	for prefix, where := range elsewhere {
		if strings.HasPrefix(command, prefix) {
			return where, true
		}
	}
	return "", false
}

// twice runs a command, lets the controllers of the cluster do their part, and runs it again.
func (s *shell) twice(page, command string) {
	s.Helper()
	if strings.Contains(command, "TENANT") {
		s.tenant()
	}
	command = strings.NewReplacer("TENANT", "cluster-abc", "IMAGE", "example.com/konnector:v1").Replace(command)
	s.run(page, command)
	before := s.settled()
	s.run(page, command)
	if diff := cmp.Diff(before, s.settled()); diff != "" {
		s.Errorf("%s: the second %q changes (-before +after):\n%s", page, command, diff)
	}
}

// same reports whether a command applies something, and fails the test if kubectl diff finds that
// to apply it again would change anything.
func (s *shell) same(page, command string) bool {
	s.Helper()
	diff := strings.Replace(command, "kubectl apply", "kubectl diff", 1)
	if diff == command {
		return false
	}
	if out, err := s.output(strings.Replace(diff, "IMAGE", "example.com/konnector:v1", 1)); err != nil || out != "" {
		s.Errorf("%s: %q after it: %v\n%s", page, diff, err, out)
	}
	return true
}

func (s *shell) run(page, command string) {
	s.Helper()
	if out, err := s.output(command); err != nil {
		s.Fatalf("%s: %q: %v\n%s", page, command, err, out)
	}
}

func (s *shell) output(command string) (string, error) {
	cmd := exec.CommandContext(s.Context(), "bash", "-e", "-o", "pipefail", "-c", command)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.cluster.Kubeconfig(), "PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"), "HOME="+s.dir)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// tenant makes one, if there is none.
func (s *shell) tenant() {
	s.Helper()
	bindings := s.dyn.Resource(v1alpha1.Resource("clusterbindings")).Namespace("cluster-abc")
	if _, err := bindings.Get(s.Context(), "cluster", metav1.GetOptions{}); err == nil {
		return
	}
	s.apply(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "cluster-abc"}})
	for _, crd := range v1alpha1.CRDs() {
		s.apply(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}, "", crd.Object)
	}
	s.settled()
	s.apply(v1alpha1.Resource("clusterbindings"), "cluster-abc", map[string]any{
		"apiVersion": "klutch.anynines.com/v1alpha1", "kind": "ClusterBinding", "metadata": map[string]any{"name": "cluster", "namespace": "cluster-abc"},
		"spec": map[string]any{"providerPrettyName": "p", "kubeconfigSecretRef": map[string]any{"name": "kubeconfig", "key": "kubeconfig"}},
	})
}

// overAndBack runs the commands of FROM-KLUTCH.md about the konnector: back, over and back
// again. Klutch's CLI has a field manager of its own, so that over takes force.
func (s *shell) overAndBack() {
	s.Helper()
	const page = "FROM-KLUTCH.md"
	check(s.T, os.WriteFile(filepath.Join(s.dir, "klutch-konnector.yaml"), must(os.ReadFile("testdata/klutch-konnector.yaml")), 0o600))
	text := string(must(os.ReadFile(page)))
	commands := func(section string) (all []string) {
		_, rest, _ := strings.Cut(text, "## The konnector: "+section+"\n")
		rest, _, _ = strings.Cut(rest, "\n## ")
		for _, block := range fence.FindAllStringSubmatch(rest, -1) {
			text := strings.TrimSpace(strings.ReplaceAll(block[1], "IMAGE", "example.com/konnector:v1"))
			if strings.HasPrefix(text, "for ") { // a loop is one command
				all = append(all, text)
				continue
			}
			all = append(all, strings.Split(text, "\n")...)
		}
		if len(all) < 2 {
			s.Fatalf("%s: commands %q", page, all)
		}
		return all
	}
	for range 2 {
		for _, command := range commands("back") {
			s.run(page, command)
		}
		s.klutchs(true)
		refused := strings.Replace(commands("over")[1], "--force-conflicts", "--dry-run=server", 1)
		if out, err := s.output(refused); err == nil || !strings.Contains(out, "with \"klutch\"") {
			s.Errorf("without force: %v\n%s", err, out)
		}
		for _, command := range commands("over") {
			s.run(page, command)
		}
		s.klutchs(false)
	}
}

// klutchs waits until the konnector is Klutch's, and works, or is ours.
func (s *shell) klutchs(want bool) {
	s.Helper()
	image, deployments := "example.com/konnector", s.dyn.Resource(schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}).Namespace("klutch-bind")
	if want {
		image = "example.com/klutch/konnector"
	}
	d := must(deployments.Get(s.Context(), "konnector", metav1.GetOptions{}))
	containers, _, _ := unstructured.NestedSlice(d.Object, "spec", "template", "spec", "containers")
	replicas, _, _ := unstructured.NestedInt64(d.Object, "spec", "replicas")
	if text := fmt.Sprint(containers); len(containers) != 1 || strings.Contains(text, "klutch/konnector") != want || replicas != 2 {
		s.Errorf("want %s, %d replicas of %v", image, replicas, text)
	}
	role := must(s.dyn.Resource(rbacv1.SchemeGroupVersion.WithResource("clusterroles")).Get(s.Context(), "klutch-bind-konnector", metav1.GetOptions{}))
	if rules := fmt.Sprint(role.Object["rules"]); strings.Contains(rules, "resources:[*]") != want {
		s.Errorf("Klutch's rules: %t, want %t: %s", !want, want, rules)
	}
	config := s.cluster.Config()
	config.Impersonate.UserName = "system:serviceaccount:klutch-bind:konnector"
	secrets := dynamic.NewForConfigOrDie(config).Resource(schema.GroupVersionResource{Version: "v1", Resource: "secrets"}).Namespace("default")
	copied := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{
		"name": "copy", "annotations": map[string]any{"klutch.anynines.com/resource-owner": "Provider"},
	}}}
	pods := s.dyn.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("klutch-bind")
	why := ""
	err := wait.PollUntilContextTimeout(s.Context(), 100*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		_, err := secrets.Create(ctx, copied, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		list, listed := pods.List(ctx, metav1.ListOptions{LabelSelector: "app=konnector"})
		theirs := 0
		for i := 0; listed == nil && i < len(list.Items); i++ {
			if strings.Contains(fmt.Sprint(list.Items[i].Object["spec"]), "klutch/konnector") {
				theirs++
			}
		}
		why = fmt.Sprintf("it copies a Secret: %v; %d pods of Klutch's (%v)", err, theirs, listed)
		return (err == nil) == want && (theirs > 0) == want, nil
	})
	if err != nil {
		s.Fatalf("want Klutch's konnector: %t: %s", want, why)
	}
}

// applyAs takes nothing over from other managers.
func (s *shell) applyAs(manager string, u *unstructured.Unstructured) {
	s.Helper()
	version := u.GroupVersionKind().GroupVersion()
	list, err := discovery.NewDiscoveryClientForConfigOrDie(s.cluster.Config()).ServerResourcesForGroupVersion(version.String())
	check(s.T, err)
	at := slices.IndexFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == u.GetKind() && !strings.Contains(r.Name, "/") })
	_, err = s.dyn.Resource(version.WithResource(list.APIResources[at].Name)).Namespace(u.GetNamespace()).Apply(s.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: manager})
	if err != nil {
		s.Errorf("%s %s: %v", u.GetKind(), u.GetName(), err)
	}
}

func (s *shell) apply(resource schema.GroupVersionResource, namespace string, o map[string]any) {
	s.Helper()
	u := &unstructured.Unstructured{Object: o}
	_, err := s.dyn.Resource(resource).Namespace(namespace).Apply(s.Context(), u.GetName(), u, metav1.ApplyOptions{FieldManager: "test", Force: true})
	check(s.T, err)
}

// settled waits until nothing changes any more, and returns a version of each object.
func (s *shell) settled() map[string]string {
	s.Helper()
	ctx, cancel := context.WithTimeout(s.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for last, same := s.versions(), 0; ; {
		select {
		case <-ctx.Done():
			s.Fatal("the cluster does not come to rest")
		case <-tick.C:
		}
		now := s.versions()
		if maps.Equal(last, now) {
			same++
		} else {
			same = 0
		}
		if last = now; same == 3 {
			return now
		}
	}
}

// versions tell writes of objects, whatever controllers write into their status.
func (s *shell) versions() map[string]string {
	s.Helper()
	all := map[string]string{}
	for group, resources := range map[string][]string{
		"": {"namespaces", "secrets", "configmaps", "serviceaccounts", "services"}, "apps": {"deployments"}, "policy": {"poddisruptionbudgets"},
		"rbac.authorization.k8s.io": {"clusterroles", "clusterrolebindings", "roles", "rolebindings"}, "apiextensions.k8s.io": {"customresourcedefinitions"},
		"admissionregistration.k8s.io": {"validatingadmissionpolicies", "validatingadmissionpolicybindings"}, "networking.k8s.io": {"networkpolicies"},
	} {
		for _, resource := range resources {
			list, err := s.dyn.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}).List(s.Context(), metav1.ListOptions{})
			check(s.T, err)
			for i := range list.Items {
				u := &list.Items[i]
				version := u.GetResourceVersion()
				if u.GetGeneration() > 0 { // it has a status of its own version
					version = fmt.Sprint("generation ", u.GetGeneration(), u.GetLabels(), u.GetAnnotations())
				}
				all[resource+" "+u.GetNamespace()+"/"+u.GetName()] = version
			}
		}
	}
	return all
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
