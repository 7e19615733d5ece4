// SPDX-License-Identifier: Apache-2.0

// Package serve runs HTTP servers that slow, huge or broken clients do not hurt,
// and ends them gracefully.
package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

const (
	maxHeader    = 16 << 10
	readHeader   = 5 * time.Second
	readRequest  = 15 * time.Second
	writeAnswer  = 60 * time.Second
	idle         = 90 * time.Second
	shutdownTime = 10 * time.Second
)

// Server returns a server of handler with limits on time and header size.
func Server(handler http.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: readHeader,
		ReadTimeout:       readRequest,
		WriteTimeout:      writeAnswer,
		IdleTimeout:       idle,
		MaxHeaderBytes:    maxHeader,
	}
}

// Run serves on ln, with TLS if srv.TLSConfig is set, until ctx is done. Then it
// lets requests in flight finish for some seconds. It closes ln. Requests have the
// values of ctx, such as its logger, and live on when ctx ends.
func Run(ctx context.Context, srv *http.Server, ln net.Listener) error {
	srv.BaseContext = func(net.Listener) context.Context { return context.WithoutCancel(ctx) }
	srv.ErrorLog = slog.NewLogLogger(logr.ToSlogHandler(logr.FromContextOrDiscard(ctx).V(1)), slog.LevelInfo)
	ended := make(chan error, 1)
	go func() { ended <- serve(srv, ln) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	case <-ctx.Done():
		return shutdown(ctx, srv, ended)
	}
}

func serve(srv *http.Server, ln net.Listener) error {
	if srv.TLSConfig != nil {
		return srv.ServeTLS(ln, "", "")
	}
	return srv.Serve(ln)
}

func shutdown(ctx context.Context, srv *http.Server, ended <-chan error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTime)
	defer cancel()
	err := srv.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("shut down %s: %w", srv.Addr, err), srv.Close())
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return err
}

// Stop ends a server that waits for one browser: it gets its page, and other clients are cut off after
// a second, also when ctx is done.
func Stop(ctx context.Context, srv *http.Server) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if srv.Shutdown(ctx) != nil {
		_ = srv.Close()
	}
}
