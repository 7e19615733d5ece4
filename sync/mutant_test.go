// SPDX-License-Identifier: Apache-2.0

//go:build unix

package sync_test

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	realcluster "github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/fakecluster"
	"github.com/klutch-go/sdk/internal/test/tempdir"
	klutchsync "github.com/klutch-go/sdk/sync"
)

var plantMutants = flag.Bool("mutants", false, "plant each mutant, which takes minutes")

// A mutant is a mistake put into the engine, to see that it is noticed.
type mutant struct {
	Name, Says, File, Old, New string
	Caught                     []string // names of the invariants, or of the tests, by which it has to be noticed
	From                       uint64   // seed from which on to look, near one that is known to notice
	In                         string   // test that notices it, if no history does
	Real                       string   // what notices it on real API servers too, of TestRealFlights
	Model                      bool     // TestModel notices it too, or alone if Caught is empty
}

// switchable is the source of what turns a mutant of a package on.
const switchable = `

import "os"

func mutated(name string) bool { return os.Getenv("SYNC_MUTANT") == name }
`

var packageClause = regexp.MustCompile(`(?m)^package \w+$`)

// TestMutants shows that the tests bite: each mistake turns them red, and none of
// them does not. All are built at once, each behind a switch. It plants them with the flag -mutants,
// which "make mutants" gives; without, it sees that each has a place.
func TestMutants(t *testing.T) {
	t.Parallel()
	var mutants []mutant
	data, err := os.ReadFile("testdata/mutants.json")
	if err == nil {
		err = json.Unmarshal(data, &mutants)
	}
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, m := range mutants {
		if len(m.Caught) == 0 && !m.Model && m.Real == "" {
			t.Errorf("mutant %s: nothing is to notice it", m.Name)
		}
		if named[m.Name] {
			t.Errorf("there are two mutants %s, which would be on together", m.Name)
		}
		named[m.Name] = true
	}
	if sources := plant(t, mutants); *plantMutants {
		mutantsDie(t, mutants, sources)
	}
}

// mutantsDie plants each mutant, and none.
func mutantsDie(t *testing.T, mutants []mutant, sources map[string]string) {
	t.Helper()
	binary := buildMutants(t, sources)
	servers := realServers(t)
	t.Run("none", func(t *testing.T) {
		t.Parallel()
		for _, none := range []mutant{{}, {In: "TestModel"}} {
			if out, err := runMutant(t, binary, none, 1, 200); err != nil {
				t.Errorf("red without a mistake: %v\n%s", err, out)
			}
		}
		if out, err := runReal(t, binary, "", "", servers); err != nil {
			t.Errorf("red without a mistake: %v\n%s", err, out)
		}
	})
	for _, m := range mutants {
		t.Run(m.Name, func(t *testing.T) {
			t.Parallel()
			if len(m.Caught) > 0 {
				m.noticed(t, binary)
			}
			if m.Model {
				m.noticedByModel(t, binary)
			}
			if m.Real != "" {
				m.noticedByReal(t, binary, servers)
			}
		})
	}
}

// noticed checks that a history breaks an invariant, with the mistake and not
// without it.
func (m mutant) noticed(t *testing.T, binary string) {
	t.Helper()
	from := max(m.From, 1)
	out, err := runMutant(t, binary, m, from, from+3000)
	if err == nil {
		t.Fatalf("no test notices a konnector that would %s", m.Says)
	}
	seed, by := finding(out)
	if !slices.Contains(m.Caught, by) {
		t.Fatalf("a konnector that would %s is noticed by %q, not by one of %v:\n%s", m.Says, by, m.Caught, lastLines(out))
	}
	t.Logf("noticed by %s at seed %d", by, seed)
	if out, err := runMutant(t, binary, mutant{In: m.In}, max(seed, 1), seed+1); err != nil {
		t.Errorf("red without the mistake too: %v\n%s", err, out)
	}
}

// noticedByModel checks that some state of the model shows the mistake. That none does
// without it is seen once, for all.
func (m mutant) noticedByModel(t *testing.T, binary string) {
	t.Helper()
	out, err := runMutant(t, binary, mutant{Name: m.Name, In: "TestModel"}, 1, 1)
	if _, by := finding(out); err == nil || by != "TestModel" {
		t.Errorf("a konnector that would %s passes TestModel (%q): %v\n%s", m.Says, by, err, lastLines(out))
	}
}

// noticedByReal checks that the mistake does harm on real API servers.
func (m mutant) noticedByReal(t *testing.T, binary string, servers []string) {
	t.Helper()
	out, err := runReal(t, binary, m.Name, m.Real, servers)
	if _, by := finding(out); err == nil || by != "TestRealFlights" {
		t.Errorf("a konnector that would %s passes on real API servers (%q): %v\n%s", m.Says, by, err, lastLines(out))
	}
}

// realServers tells in environment variables where two real API servers are.
func realServers(t *testing.T) (env []string) {
	t.Helper()
	for _, name := range []string{"SYNC_SOURCE", "SYNC_TARGET"} {
		env = append(env, name+"="+realcluster.Reused(t, "mutants").Kubeconfig())
	}
	return env
}

// runReal runs one of TestRealFlights, or all of them.
func runReal(t *testing.T, binary, name, flight string, servers []string) (string, error) {
	t.Helper()
	run := "^TestRealFlights$/" + strings.ReplaceAll(flight, " ", "_")
	cmd := exec.CommandContext(t.Context(), binary, "-test.run="+run, "-test.count=1") //nolint:gosec // paths of our own
	cmd.Env = append(append(os.Environ(), "SYNC_MUTANT="+name), servers...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

var (
	brokenSeed = regexp.MustCompile(`: seed (\d+): (I\d+): `)
	failedTest = regexp.MustCompile(`--- FAIL: (Test\w+) `)
)

// finding is the invariant that a history broke, or else the test that failed. A
// process that crashed has found nothing.
func finding(out string) (seed uint64, by string) {
	if strings.Contains(out, "panic: ") || strings.Contains(out, "fatal error: ") {
		return 0, "a crash"
	}
	if m := brokenSeed.FindStringSubmatch(out); m != nil {
		seed, _ = strconv.ParseUint(m[1], 10, 64)
		return seed, m[2]
	}
	if m := failedTest.FindStringSubmatch(out); m != nil {
		return 0, m[1]
	}
	return 0, ""
}

// plant puts each mistake behind a switch, into the sources of its file.
func plant(t *testing.T, mutants []mutant) (sources map[string]string) {
	t.Helper()
	sources = map[string]string{}
	for _, m := range mutants {
		if sources[m.File] == "" {
			data, err := os.ReadFile(m.File)
			if err != nil {
				t.Fatal(err)
			}
			sources[m.File] = string(data)
			sources[filepath.Join(filepath.Dir(m.File), "mutated.go")] = packageClause.FindString(string(data)) + switchable
		}
		if n := strings.Count(sources[m.File], m.Old); n != 1 {
			t.Fatalf("mutant %s: its place is %d times in %s: bring testdata/mutants.json up to date", m.Name, n, m.File)
		}
		sources[m.File] = strings.Replace(sources[m.File], m.Old, m.New, 1)
	}
	return sources
}

// buildMutants builds the tests of this package over the mutated sources.
func buildMutants(t *testing.T, sources map[string]string) string {
	t.Helper()
	dir := tempdir.ForTest(t, "mutants")
	overlay := map[string]string{}
	here, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range sources {
		mutated := filepath.Join(dir, strings.ReplaceAll(filepath.ToSlash(name), "/", "_"))
		overlay[filepath.Join(here, name)] = mutated
		write(t, mutated, []byte(text))
	}
	data, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "overlay.json"), data)
	binary := filepath.Join(dir, "mutants.test")
	build := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", filepath.Join(dir, "overlay.json"), "-o", binary, ".") //nolint:gosec // paths of our own
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.WriteFile(name, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// runMutant simulates histories until one breaks an invariant, or else runs the test
// that notices the mutant.
func runMutant(t *testing.T, binary string, m mutant, from, to uint64) (string, error) {
	t.Helper()
	tests := "^(TestSimRange|TestTwoBindings|TestStaleViews)$"
	if m.In != "" {
		tests = "^" + m.In + "$"
	}
	cmd := exec.CommandContext(t.Context(), binary, "-test.run="+tests, "-test.failfast", "-simcases", "-simfrom="+strconv.FormatUint(from, 10), "-simquick", "-seeds="+strconv.FormatUint(to, 10)) //nolint:gosec // paths of our own
	cmd.Env = append(os.Environ(), "SYNC_MUTANT="+m.Name, "GOMAXPROCS=1", "GODEBUG=randseednop=0", "GOGC=400")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Two bindings of one resource, each with its finalizer: the source stays until
// both targets have gone.
func TestTwoBindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := fakecluster.Named("src", simResource(false))
		targets := []*fakecluster.Cluster{fakecluster.Named("one", simResource(false)), fakecluster.Named("two", simResource(false))}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, len(targets))
		from, _ := klutchsync.NewClusterForClients(source.Client(), source.Metadata())
		for i, target := range targets {
			to, _ := klutchsync.NewClusterForClients(target.Client(), target.Metadata())
			finalizer := klutchsync.DefaultFinalizer + []string{"-one", "-two"}[i]
			s, err := klutchsync.New(from, to, simThings, klutchsync.Options{Binding: finalizer, Finalizer: finalizer})
			if err != nil {
				t.Fatal(err)
			}
			go func() { done <- s.Run(ctx) }()
		}
		things := source.Client().Resource(simThings).Namespace("default")
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.org/v1", "kind": "Widget", "spec": map[string]any{"size": "1"}}}
		o.SetName("x")
		if _, err := things.Create(ctx, o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		targets[1].Intercept(func(context.Context, fakecluster.Request, func() error) error { return context.DeadlineExceeded })
		if err := things.Delete(ctx, "x", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if left, _ := targets[1].Objects(simThings); len(left) != 1 {
			t.Fatalf("%d objects on the target that cannot be reached", len(left))
		}
		if _, err := things.Get(ctx, "x", metav1.GetOptions{}); err != nil {
			t.Errorf("the source was let go while one of its targets was there: %v", err)
		}
		targets[1].Intercept(nil)
		time.Sleep(5 * time.Minute)
		if left, _ := source.Objects(simThings); len(left) > 0 {
			t.Errorf("the source stays: %v", left)
		}
		cancel()
		for range targets {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
