// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A moment is a time, and how long processors have worked until then.
type moment struct {
	at         time.Time
	all, ours  time.Duration // of the machine, and of this process with those that it waited for
	processors int           // 0 where the system does not tell what the machine did
}

func now(t *testing.T) moment {
	t.Helper()
	m := moment{at: time.Now()}
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var used syscall.Rusage
		if err := syscall.Getrusage(who, &used); err != nil {
			t.Fatal(err)
		}
		m.ours += time.Duration(used.Utime.Nano() + used.Stime.Nano())
	}
	text, _ := os.ReadFile("/proc/stat") // Linux has it
	m.all, m.processors = worked(string(text))
	return m
}

// worked is how long the machine's processors have worked, and how many these are, by /proc/stat, whose
// unit is 10 ms. A processor that is idle or waits for a disk does not work.
func worked(stat string) (all time.Duration, processors int) {
	var user, nice, system, idle, wait, irq, softirq, steal int64
	_, _ = fmt.Sscanf(stat, "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &wait, &irq, &softirq, &steal)
	return time.Duration(user+nice+system+irq+softirq+steal) * 10 * time.Millisecond, strings.Count(stat, "\ncpu")
}

// share is how much of some time the machine was ours: what others worked meanwhile is taken off, as it
// is spread over the processors. A show that has half of a busy machine may take twice as long.
func share(took, all, ours time.Duration, processors int) time.Duration {
	return took - max(0, all-ours)/time.Duration(processors)
}

// within fails the test if more than the limit has passed since, on a machine that does nothing else.
func (m moment) within(t *testing.T, limit time.Duration) {
	t.Helper()
	end := now(t)
	took := end.at.Sub(m.at)
	if end.processors == 0 {
		t.Logf("it took %s; what else the machine did is not known here", took)
		return
	}
	own := share(took, end.all-m.all, end.ours-m.ours, end.processors)
	t.Logf("it took %s, of which the machine was ours for %s", took.Round(time.Second), own.Round(time.Second))
	if own > limit {
		t.Errorf("it took %s without what others did, want %s", own, limit)
	}
}

func TestShare(t *testing.T) {
	seconds := func(n int) time.Duration { return time.Duration(n) * time.Second }
	for name, test := range map[string]struct{ took, all, ours, want int }{
		"alone, and waits":         {60, 60, 60, 60},
		"alone, and works":         {60, 120, 120, 60},
		"half of the machine":      {120, 240, 120, 60},
		"beside one that works":    {60, 100, 40, 30},
		"clocks that differ a bit": {60, 99, 100, 60},
	} {
		if have := share(seconds(test.took), seconds(test.all), seconds(test.ours), 2); have != seconds(test.want) {
			t.Errorf("%s: %s, want %s", name, have, seconds(test.want))
		}
	}
	if have, n := worked("cpu  1 2 3 400 500 6 7 8 9 10\ncpu0 1 2\ncpu1 1 2\nintr 1\n"); have != 270*time.Millisecond || n != 2 {
		t.Errorf("%d processors worked %s", n, have)
	}
}
