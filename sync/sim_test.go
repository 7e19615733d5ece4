// SPDX-License-Identifier: Apache-2.0

package sync_test

import (
	"bufio"
	"bytes"
	"flag"
	"iter"
	"math/rand"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	gosync "sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

var (
	simSeeds = flag.Uint64("seeds", 1_000, "number of histories that TestSim simulates, twenty times as many in make sim; a fourth under the race detector")
	simSeed  = flag.Uint64("seed", 0, "the one history that TestSim simulates and prints")
	simText  = flag.String("plan", "", "the one history that TestSim simulates and prints, as it prints it")
	simCases = flag.Bool("simcases", false, "for processes that TestSim starts: the histories in testdata, and then those from -simfrom on")
	simTwice = flag.Bool("simtwice", false, "for processes that TestSim starts: each history twice, to compare, with all that was written")
	simQuick = flag.Bool("simquick", false, "for processes that TestSim starts: do not shrink what fails")
	simFrom  = flag.Uint64("simfrom", 0, "for processes that TestSim starts: the first history, up to -seeds")
)

// simulate runs one history.
func simulate(t *testing.T, p simPlan) (s *sim, broken *violation) {
	t.Helper()
	utilruntime.ErrorHandlers = nil // client-go's waits until a time of another bubble
	rand.Seed(int64(p.seed))        //nolint:staticcheck // jitter has no other source that could be seeded
	synctest.Test(t, func(t *testing.T) {
		s = newSim(t.Context(), p)
		broken = s.run()
	})
	return s, broken
}

// shrink takes out of a failing plan what is not needed to break the invariant.
func shrink(t *testing.T, p simPlan, broken *violation) simPlan {
	t.Helper()
	for _, cut := range []func(q *simPlan){func(q *simPlan) { q.hour = q.later; q.later = op{} }, func(q *simPlan) { q.later = op{} }, func(q *simPlan) { q.hour = op{} }} {
		q := p
		if cut(&q); p.hour.act == nil {
			continue
		}
		if _, b := simulate(t, q); b != nil && b.invariant == broken.invariant {
			p = q
		}
	}
	for i := len(p.ops) - 1; i >= 0; i-- {
		q := p
		q.ops = slices.Clone(p.ops)
		q.ops[i].skip = true
		if _, b := simulate(t, q); b != nil && b.invariant == broken.invariant {
			p = q
		}
	}
	return p
}

// TestSim simulates histories, in one process for each CPU: the source of jitter is
// shared in a process.
func TestSim(t *testing.T) {
	if *simSeed > 0 {
		replay(t, newPlan(*simSeed))
		return
	}
	if *simText != "" {
		replay(t, parsePlan(t, *simText))
		return
	}
	seeds := *simSeeds
	if raceDetector {
		seeds /= 4
	}
	if testing.Short() {
		seeds = min(seeds, 400)
	}
	t.Parallel()
	cores := uint64(min(runtime.NumCPU(), 16))
	most := min((seeds+cores-1)/cores, mostAtOnce)
	outs := make([]string, (seeds+most-1)/most)
	turns := make(chan struct{}, cores)
	var wg gosync.WaitGroup
	for i := range outs {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			if from := 1 + uint64(i)*most; !t.Failed() {
				outs[i] = simProcess(t, from, min(from+most, 1+seeds))
			}
		})
	}
	wg.Wait()
	if seeds < 1000 || t.Failed() {
		return
	}
	all := met{}
	for _, out := range outs {
		all.add(out)
	}
	all.check(t, seeds)
}

// mostAtOnce is how many histories a process simulates, so that it is far from its time limit on a busy machine too.
const mostAtOnce = 1000

// simProcess simulates a range of histories in a process of its own, and returns what that prints.
func simProcess(t *testing.T, from, to uint64, more ...string) (printed string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Error(err)
		return ""
	}
	args := append([]string{
		"-test.v", "-test.run=^TestSimRange$", "-test.timeout=30m",
		"-simfrom=" + strconv.FormatUint(from, 10), "-seeds=" + strconv.FormatUint(to, 10),
	}, more...)
	cmd := exec.CommandContext(t.Context(), self, args...) //nolint:gosec // this very binary
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GODEBUG=randseednop=0", "GOGC=400")
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Errorf("histories from %d to before %d: %v\n%s", from, to, err, lastLines(out.String()))
	}
	return out.String()
}

func lastLines(text string) string {
	var lines []string
	for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
		lines = append(lines, scanner.Text())
	}
	return strings.Join(lines[max(0, len(lines)-200):], "\n")
}

// TestSimRange is what the processes of TestSim run.
func TestSimRange(t *testing.T) {
	if *simFrom == 0 && !*simCases {
		t.Skip("runs in processes that TestSim starts")
	}
	all := met{}
	defer func() {
		if !t.Failed() {
			t.Log("\n" + all.String())
		}
	}()
	for p := range plans(t) {
		s, broken := simulate(t, p)
		for k, n := range s.met {
			all[k] += n
		}
		if *simTwice {
			again(t, p, s.trace)
		}
		if broken == nil {
			continue
		}
		if *simQuick {
			t.Fatalf("seed %d: %v", p.seed, broken)
		}
		p = shrink(t, p, broken)
		t.Errorf("seed %d: %v", p.seed, broken)
		replay(t, p)
		return
	}
}

// again simulates a history again, which has to be the same one.
func again(t *testing.T, p simPlan, trace []string) {
	t.Helper()
	next, _ := simulate(t, p)
	if diff := cmp.Diff(trace, next.trace); diff != "" {
		t.Fatalf("seed %d (-before +after):\n%s", p.seed, diff)
	}
}

// plans are those that a process has to simulate.
func plans(t *testing.T) iter.Seq[simPlan] {
	t.Helper()
	return func(yield func(simPlan) bool) {
		if *simCases {
			for _, text := range cases(t) {
				if !yield(parsePlan(t, text)) {
					return
				}
			}
		}
		if *simFrom == 0 {
			return
		}
		for seed := *simFrom; seed < *simSeeds; seed++ {
			if !yield(newPlan(seed)) {
				return
			}
		}
	}
}

// cases are histories that once broke an invariant.
func cases(t *testing.T) (out []string) {
	t.Helper()
	data, err := os.ReadFile("testdata/histories.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "#") {
			out = append(out, line)
		}
	}
	return out
}

// replay simulates one history, and tells it if it is a bad one.
func replay(t *testing.T, p simPlan) {
	t.Helper()
	t.Setenv("GODEBUG", "randseednop=0")
	s, broken := simulate(t, p)
	if broken != nil {
		t.Errorf("%s\n%s\n%v", p, strings.Join(s.trace, "\n"), broken)
		return
	}
	t.Logf("%s\n%s", p, strings.Join(s.trace, "\n"))
}

// Histories that once broke an invariant do so no more.
func TestSimCases(t *testing.T) {
	t.Parallel()
	simProcess(t, 0, 0, "-simcases")
}

// The same seed is the same history, whatever came before it and whatever order the
// Go scheduler takes goroutines in, which under the race detector is a random one.
func TestSimIsDeterministic(t *testing.T) {
	t.Parallel()
	to := uint64(80)
	if raceDetector {
		to = 20
	}
	simProcess(t, 1, to, "-simtwice")
}
