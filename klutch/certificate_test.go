// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/klutch-go/sdk/internal/serve"
)

// pair writes a certificate with that number, and its key.
func pair(t *testing.T, number int64, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(number), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert}, keyFile: {Type: "PRIVATE KEY", Bytes: der}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestP23CertificateIsReadAnew: a new certificate counts for the next connection, and
// half of one breaks nothing.
func TestP23CertificateIsReadAnew(t *testing.T) {
	dir := t.TempDir()
	b := Backend{TLSCertFile: filepath.Join(dir, "tls.crt"), TLSKeyFile: filepath.Join(dir, "tls.key")}
	pair(t, 1, b.TLSCertFile, b.TLSKeyFile)
	config, err := b.tls()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	server := serve.Server(http.NotFoundHandler())
	server.TLSConfig = config
	go func() { done <- serve.Run(ctx, server, listener) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	shown := func(want int64) {
		t.Helper()
		dialer := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // the test looks itself
		conn, err := dialer.DialContext(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if got := conn.(*tls.Conn).ConnectionState().PeerCertificates[0].SerialNumber.Int64(); got != want { //nolint:forcetypeassert // that is what it returns
			t.Errorf("certificate %d, want %d", got, want)
		}
	}
	shown(1)
	pair(t, 2, b.TLSCertFile, filepath.Join(dir, "next.key"))
	shown(1)
	if err := os.Rename(filepath.Join(dir, "next.key"), b.TLSKeyFile); err != nil {
		t.Fatal(err)
	}
	shown(2)
	if err := os.Remove(b.TLSCertFile); err != nil {
		t.Fatal(err)
	}
	shown(2)
}
