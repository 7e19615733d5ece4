// SPDX-License-Identifier: Apache-2.0

package serve_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klutch-go/sdk/internal/serve"
)

// start serves handler until the returned function is called, which returns what
// Run returned.
func start(t *testing.T, handler http.Handler) (address string, stop func() error) {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve.Run(ctx, serve.Server(handler), ln) }()
	return ln.Addr().String(), func() error {
		cancel()
		return <-done
	}
}

// A request in flight finishes, with a context that is alive, after Run was told to end.
func TestRunEndsGracefully(t *testing.T) {
	arrived, finish := make(chan struct{}), make(chan struct{})
	address, stop := start(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		close(arrived)
		<-finish
		_, _ = fmt.Fprint(w, r.Context().Err())
	}))
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	<-arrived
	ended := make(chan error, 1)
	go func() { ended <- stop() }()
	for { // until the listener is closed, which is the first thing that ends
		probe, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			break
		}
		_ = probe.Close()
	}
	close(finish)
	answer, err := io.ReadAll(conn)
	if err := errors.Join(err, <-ended); err != nil {
		t.Error(err)
	}
	if !strings.HasSuffix(string(answer), "<nil>") {
		t.Errorf("answer: %s", answer)
	}
}

func TestP8LargeHeader(t *testing.T) {
	address, stop := start(t, http.NotFoundHandler())
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\nX: "+strings.Repeat("x", 24<<10)+"\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	if err := errors.Join(err, conn.Close(), stop()); err != nil || !strings.Contains(line, "431") {
		t.Errorf("%s %v", line, err)
	}
}

// P8: a client that sends a byte now and then, or reads no answer, is cut off; others are
// served meanwhile.
func TestP8Slowloris(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- serve.Run(ctx, serve.Server(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				_, _ = w.Write(make([]byte, 1<<20))
			})), ln)
		}()
		for name, test := range map[string]struct {
			begin   string
			trickle bool
			deaf    time.Duration
			limit   time.Duration
		}{
			"silent": {"", false, 0, 6 * time.Second},
			"header": {"GET / HTTP/1.1\r\nHost: x\r\nX: ", true, 0, 6 * time.Second},
			"body":   {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000\r\n\r\n", true, 0, 16 * time.Second},
			"deaf":   {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", false, 61 * time.Second, 62 * time.Second},
		} {
			began, conn := time.Now(), ln.dial()
			var client sync.WaitGroup
			client.Go(func() {
				_, err := io.WriteString(conn, test.begin)
				for err == nil && test.trickle {
					time.Sleep(time.Second)
					_, err = io.WriteString(conn, "x")
				}
			})
			time.Sleep(test.deaf)
			_, _ = io.Copy(io.Discard, conn) // until it is cut off
			if took := time.Since(began); took > test.limit {
				t.Errorf("%s: still served after %s", name, took)
			}
			_ = conn.Close()
			client.Wait() // time stands still once the test is over
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// pipes is a listener without a network, so that time can be made up.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.conns <- theirs
	return ours
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

func TestRunOnClosedListener(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err := errors.Join(err, ln.Close()); err != nil {
		t.Fatal(err)
	}
	if err := serve.Run(t.Context(), serve.Server(nil), ln); err == nil || !strings.Contains(err.Error(), ln.Addr().String()) {
		t.Errorf("%v", err)
	}
}

func TestHealth(t *testing.T) {
	ill := serve.Health{
		Ready: func() error { return errors.New("not ready") },
		Live:  func() error { return errors.New("stuck") },
	}
	for _, test := range []struct {
		health serve.Health
		path   string
		code   int
		body   string
	}{
		{serve.Health{}, "/livez", 200, "ok\n"},
		{serve.Health{}, "/readyz", 200, "ok\n"},
		{serve.Health{}, "/healthz", 200, "ok\n"},
		{serve.Health{}, "/", 404, "404 page not found\n"},
		{ill, "/livez", 503, "stuck\n"},
		{ill, "/readyz", 503, "not ready\n"},
		{ill, "/healthz", 503, "not ready\n"},
	} {
		w := httptest.NewRecorder()
		test.health.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, test.path, nil))
		if w.Code != test.code || w.Body.String() != test.body {
			t.Errorf("%s: %d %s", test.path, w.Code, w.Body)
		}
	}
}
