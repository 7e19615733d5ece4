// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"
)

// perPackage is how long one core compiles a package of Kubernetes, on average: twelve minutes of CPU for 2 500
// packages, a quarter less with thrift, and something for what else a machine does meanwhile.
const perPackage = 250 * time.Millisecond

// announcement says how long it takes to compile packages on cores.
func announcement(packages, cores int) string {
	machine := fmt.Sprintf("%d cores", cores)
	if cores == 1 {
		machine = "1 core"
	}
	return fmt.Sprintf("Compiling Kubernetes' servers, once for this machine: %s packages, %s on %s.",
		grouped(packages), about(perPackage*time.Duration(packages)/time.Duration(cores)), machine)
}

// A progress counts the lines of go build -v, of which there is one for each package that is compiled,
// and says how many there are. A terminal has it in one line that changes, anything else a line for each
// twentieth.
type progress struct {
	to       io.Writer
	terminal bool
	total    int
	elapsed  func() time.Duration

	done, told int
	other      bytes.Buffer // what is no name of a package: messages of the compiler
	line       []byte       // that has not ended
}

func (p *progress) Write(data []byte) (int, error) {
	for _, b := range data {
		if b != '\n' {
			p.line = append(p.line, b)
			continue
		}
		p.ended(p.line)
		p.line = p.line[:0]
	}
	return len(data), nil
}

func (p *progress) ended(line []byte) {
	if len(line) == 0 || bytes.ContainsAny(line, " #:\t") {
		p.other.Write(append(line, '\n'))
		return
	}
	p.done++
	steps := 20
	if p.terminal {
		steps = 1000
	}
	if step := p.done * steps / max(p.total, 1); step != p.told {
		p.told = step
		p.tell()
	}
}

func (p *progress) tell() {
	text := state(p.done, p.total, p.elapsed())
	if p.terminal {
		_, _ = fmt.Fprintf(p.to, "\r%s\x1b[K", text)
		if p.done == p.total {
			_, _ = fmt.Fprintln(p.to)
		}
		return
	}
	_, _ = fmt.Fprintln(p.to, text)
}

// state says how far a build has come. Linking comes after the last package.
func state(done, total int, elapsed time.Duration) string {
	text := fmt.Sprintf("%s of %s packages", grouped(done), grouped(total))
	if done >= total {
		return text + ", linking"
	}
	return text + ", " + about(elapsed*time.Duration(total-done)/time.Duration(max(done, 1))) + " left"
}

// about is a time as people say it.
func about(d time.Duration) string {
	switch minutes := int(d.Round(time.Minute) / time.Minute); {
	case d < 45*time.Second:
		return "less than a minute"
	case minutes <= 1:
		return "about a minute"
	default:
		return fmt.Sprintf("about %d minutes", minutes)
	}
}

// grouped writes a number with its thousands apart.
func grouped(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s %03d", grouped(n/1000), n%1000)
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
