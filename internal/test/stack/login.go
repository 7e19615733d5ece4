// SPDX-License-Identifier: Apache-2.0

package stack

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/klutch-go/sdk/internal/test/cluster"
	"github.com/klutch-go/sdk/internal/test/testissuer"
)

const patience = 2 * time.Minute

// newIssuer serves the issuer of the demo's people until the Stack is stopped.
func (s *Stack) newIssuer(ctx context.Context) error {
	address, err := cluster.FreeAddress(ctx)
	if err != nil {
		return fmt.Errorf("issuer: %w", err)
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("issuer: %w", err)
	}
	s.issuerAddr, s.clientSecret = address, rand.Text()
	s.Issuer = testissuer.New(testissuer.Options{
		URL: "http://" + s.issuerAddr,
		Users: map[string]testissuer.User{
			Developer: {Password: Password, Name: "Dana Developer", Email: "dana@example.org", Groups: []string{developers}},
			Colleague: {Password: Password, Name: "Cleo Colleague", Email: "cleo@example.org", Groups: []string{developers}},
			Guest:     {Password: Password, Name: "Gus Guest", Email: "gus@example.org", Groups: []string{"guests"}},
		},
		Clients: map[string]testissuer.Client{clientID: {Secret: s.clientSecret}},
	})
	s.serveIssuer(ctx, listener)
	return nil
}

func (s *Stack) serveIssuer(ctx context.Context, listener net.Listener) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { _ = s.Issuer.Serve(ctx, listener, nil) })
	s.stopIssuer = func() { cancel(); wg.Wait() }
}

// StopIssuer takes the issuer away; StartIssuer brings it back at the same address.
func (s *Stack) StopIssuer() { s.stopIssuer() }

// StartIssuer undoes StopIssuer.
func (s *Stack) StartIssuer(ctx context.Context) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.issuerAddr)
	if err != nil {
		return fmt.Errorf("issuer: %w", err)
	}
	s.serveIssuer(ctx, listener)
	return nil
}

// An Output is what a command left behind.
type Output struct {
	Stdout, Stderr string
	Code           int
	// URLs are those that the browser asked for, redirects included.
	URLs []string
}

// Bind runs kubectl bind against the backend, with the App Cluster's kubeconfig,
// and goes through the login in a scripted browser as user.
func (s *Stack) Bind(ctx context.Context, user string, args ...string) Output {
	browser := s.Browser(user)
	out := s.BindHearing(ctx, OnURL(func(url string) {
		// What the browser ends with is not an error here: the command tells.
		_, _ = browser.Visit(ctx, url)
	}), args...)
	out.URLs = browser.URLs()
	return out
}

// BindHearing is Bind without a browser: hear gets each line that the command says.
func (s *Stack) BindHearing(ctx context.Context, hear func(line string), args ...string) Output {
	return s.Kubectl(ctx, hear, append([]string{s.BackendURL, "--backend-certificate-authority", s.BackendCA, "--skip-konnector", "--no-browser", "--yes"}, args...)...)
}

// OnURL visits the first URL that is said on a line of its own, and does not wait.
func OnURL(visit func(url string)) func(line string) {
	return func(line string) {
		if visit != nil && (strings.HasPrefix(line, "https://") || strings.HasPrefix(line, "http://")) {
			go visit(line)
			visit = nil
		}
	}
}

// Browser returns a browser in which user logs in and accepts what is asked for.
func (s *Stack) Browser(user string) *testissuer.Browser {
	pool := x509.NewCertPool()
	if ca, err := os.ReadFile(s.BackendCA); err == nil {
		pool.AppendCertsFromPEM(ca)
	}
	return testissuer.NewBrowser(testissuer.BrowserOptions{
		Username: user, Password: Password, Patient: true,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}},
	})
}

// commandTimeout is when a command that does not end is killed, so that a test names it.
const commandTimeout = 10 * time.Minute

// Kubectl runs kubectl-bind with the App Cluster's kubeconfig. It calls hear, if not
// nil, with each line that the command says to people.
func (s *Stack) Kubectl(ctx context.Context, hear func(line string), args ...string) Output {
	ctx, cancel := context.WithTimeoutCause(ctx, commandTimeout, fmt.Errorf("killed after %s: kubectl bind %q", commandTimeout, args))
	defer cancel()
	out := s.run(exec.CommandContext(ctx, filepath.Join(s.Dir, "bin", "kubectl-bind"), append(args, "--kubeconfig", s.App.Kubeconfig())...), hear)
	if ctx.Err() != nil {
		out.Stderr += context.Cause(ctx).Error()
	}
	return out
}

// run runs a command of a person. It calls hear, if not nil, with each line that the command says to people.
func (s *Stack) run(cmd *exec.Cmd, hear func(line string)) Output {
	var stdout, stderr bytes.Buffer
	pipe, writer := io.Pipe()
	cmd.Stdout, cmd.Stderr = &stdout, io.MultiWriter(&stderr, writer)
	var wg sync.WaitGroup
	wg.Go(func() { listen(pipe, hear) })
	err := cmd.Run()
	_ = writer.Close()
	wg.Wait()
	out := Output{Stdout: stdout.String(), Stderr: stderr.String()}
	s.note(cmd.Args, out)
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		out.Code = exit.ExitCode()
	case err != nil:
		out.Code, out.Stderr = -1, out.Stderr+err.Error()
	}
	return out
}

// note keeps what kubectl-bind said beside the logs of the other programs.
func (s *Stack) note(args []string, out Output) {
	log, err := os.OpenFile(filepath.Join(s.Dir, "kubectl-bind.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return
	}
	_, _ = fmt.Fprintf(log, "$ %s\n%s%s", strings.Join(args, " "), out.Stderr, out.Stdout)
	_ = log.Close()
}

func listen(said io.Reader, hear func(line string)) {
	for lines := bufio.NewScanner(said); hear != nil && lines.Scan(); {
		hear(strings.TrimSpace(lines.Text()))
	}
	_, _ = io.Copy(io.Discard, said)
}
