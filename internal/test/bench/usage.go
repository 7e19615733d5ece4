// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/klutch-go/sdk/internal/test/stack"
)

// A memory is what a process uses, in KB: what the operating system has given to it, now and
// at most so far, and what of its heap was in use after the last collection. It is 0 where there
// is no telling: resident and peak where there is no /proc, live without traceHeap.
type memory struct{ resident, peak, live float64 }

// traceHeap, in the environment, has a Go program log each of its collections.
const traceHeap = "GODEBUG=gctrace=1"

// forcedCollection is how long the Go runtime does without a collection at most.
const forcedCollection = 2 * time.Minute

func memoryOf(p *stack.Process) memory {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID())) // empty where there is none
	log, _ := os.ReadFile(p.Log())
	return memory{lastNumber(resident, status), lastNumber(highest, status), liveKB(log)}
}

func (m memory) minus(o memory) memory {
	return memory{m.resident - o.resident, m.peak - o.resident, m.live - o.live}
}

func (m memory) over(n int) memory {
	return memory{m.resident / float64(n), m.peak / float64(n), m.live / float64(n)}
}

// collections is how many collections a process with traceHeap has logged.
func collections(p *stack.Process) int {
	log, _ := os.ReadFile(p.Log()) // empty where there is none
	return len(collection.FindAll(log, -1))
}

// cpuOf is the time that a process has spent on all cores so far; 0 where there is no telling.
func cpuOf(p *stack.Process) time.Duration {
	stat, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID())) // empty where there is none
	return cpuTime(stat)
}

// tick is the unit of /proc's times: USER_HZ, which is 100 wherever Go runs on Linux.
const tick = 10 * time.Millisecond

// cpuTime is utime and stime, the 14th and 15th field (proc_pid_stat(5)). The second field,
// the program's name, may have blanks and brackets in it.
func cpuTime(stat []byte) time.Duration {
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 13 {
		return 0
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0
		}
		ticks += n
	}
	return time.Duration(ticks) * tick
}

var (
	resident   = regexp.MustCompile(`(?m)^VmRSS:\s*(\d+) kB$`)
	highest    = regexp.MustCompile(`(?m)^VmHWM:\s*(\d+) kB$`)
	collection = regexp.MustCompile(`(?m)^gc \d+ @.* \d+->\d+->(\d+) MB, `)
)

func liveKB(log []byte) float64 { return 1024 * lastNumber(collection, log) }

func lastNumber(in *regexp.Regexp, text []byte) float64 {
	all := in.FindAllSubmatch(text, -1)
	if len(all) == 0 {
		return 0
	}
	n, err := strconv.ParseFloat(string(all[len(all)-1][1]), 64)
	if err != nil {
		return 0
	}
	return n
}
