// SPDX-License-Identifier: Apache-2.0

package klutch

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/export"
	"github.com/klutch-go/sdk/internal/group"
	"github.com/klutch-go/sdk/internal/leader"
	"github.com/klutch-go/sdk/internal/metrics"
	"github.com/klutch-go/sdk/internal/redirect"
	"github.com/klutch-go/sdk/internal/serve"
	"github.com/klutch-go/sdk/internal/version"
)

const (
	backendNamespace = "klutch-backend"
	backendLease     = "klutch-backend"
)

// A Backend is the whole backend: handshake, controllers, health, leader election.
// Its fields are its configuration; Config, Login and Options.ExternalURL are
// required, and a certificate unless ListenAddress is a loopback address.
//
//	err := klutch.Backend{
//		Config:        config,
//		Login:         auth.Config{Issuer: "https://login.example.com", ClientID: "klutch", ClientSecret: secret},
//		Options:       export.Options{ExternalURL: "https://bind.example.com"},
//		ListenAddress: ":8443", TLSCertFile: "tls.crt", TLSKeyFile: "tls.key",
//	}.Run(ctx)
type Backend struct {
	// Config reaches the Control Plane Cluster with the rights of the shipped
	// ClusterRole.
	Config *rest.Config
	// Namespace is that of the backend itself: for its Lease, and for the Secret
	// with the session keys if SessionKeys is empty. Empty means klutch-backend.
	Namespace string
	// Identity tells this replica from the others. Empty means a random one.
	Identity string
	// Login names the issuer. An empty RedirectURL means /callback at
	// Options.ExternalURL.
	Login auth.Config
	// Issuers are further ones with which people may sign in.
	Issuers []Issuer
	// Machines are the issuers whose access tokens machines may bring, each with
	// the Audiences that count. An empty Issuer means that of Login. None means
	// that only people can bind.
	Machines []auth.Config
	// SessionKeys seal cookies and one-time codes: the first seals, all open.
	// Empty means those of the Secret klutch-backend-session, which is made when
	// it is missing, and rotated.
	SessionKeys [][]byte
	// SessionKeyLife is how old the newest key in that Secret gets. The one before
	// opens for two more hours. Zero means a week, less than zero for good.
	SessionKeyLife time.Duration
	// Options of the exporter. Provider and Sealer are set by Run, and
	// Handshake.Devices if it is nil.
	Options export.Options
	// ListenAddress is where the handshake is served, such as ":8443".
	ListenAddress string
	// TLSCertFile and TLSKeyFile are read anew for each connection. While they do not
	// belong together, as in the midst of a renewal, those before them count.
	TLSCertFile, TLSKeyFile string
	// Connections is how many connections to ListenAddress may be open, and
	// ConnectionsPerAddress how many of one address; of gateways, which are Options.Handshake.TrustedProxies,
	// only the former counts. Zero means 2000 and 100, less than zero any number.
	Connections, ConnectionsPerAddress int
	// PlainHTTP allows to go without a certificate on other than loopback
	// addresses: where a gateway in front ends TLS.
	PlainHTTP bool
	// HealthAddress is where /livez, /readyz and /healthz are served, such as
	// ":8081". Empty means nowhere.
	HealthAddress string
	// Metrics, if any, are served at /metrics of HealthAddress: see Measured. What other
	// ones count comes from Options.Handshake.Hooks, Observe and IssuerSeen.
	Metrics http.Handler
	// Observe, if not nil, is given the Exporter before it runs.
	Observe func(*export.Exporter)
	// IssuerSeen, if not nil, is told once a minute of each issuer whether it answers. Its
	// name is that in Issuers, "login" for that of Login, and "machines" with a number.
	IssuerSeen func(name string, up bool)
}

// An Issuer is one more with which people may sign in; see [export.Issuer].
type Issuer struct {
	Name, Title string
	// Login is as in [Backend]. An empty RedirectURL means /callback/NAME at
	// Options.ExternalURL.
	Login auth.Config
	Users export.Users
}

// Run runs the backend until ctx is done. All replicas serve the handshake; one runs
// the controllers.
func (b Backend) Run(ctx context.Context) error {
	b = b.withDefaults()
	client, err := kubernetes.NewForConfig(b.Config)
	if err != nil {
		return fmt.Errorf("client for the Control Plane Cluster: %w", err)
	}
	tlsConfig, err := b.tls()
	if err != nil {
		return err
	}
	keys := &keyring{client: client, namespace: b.Namespace, life: cmp.Or(b.SessionKeyLife, sessionKeyLife)}
	if err := b.seal(ctx, keys); err != nil {
		return err
	}
	sweep := b.devices(client)
	watched := &issuers{seen: b.IssuerSeen, now: time.Now}
	exporter, err := b.exporter(watched)
	if err != nil {
		return err
	}
	log := logr.FromContextOrDiscard(ctx)
	further, machines := b.issuers()
	log.Info("starting the backend", "version", b.Options.Version, "commit", version.Commit(), "address", b.ListenAddress, "health", b.HealthAddress, "externalURL", b.Options.ExternalURL,
		"issuer", b.Login.Issuer, "furtherIssuers", further, "machineIssuers", machines, "controlPlane", b.Config.Host, "lease", b.Namespace+"/"+backendLease, "replica", b.Identity)
	if b.Options.Handshake.LegacyCLI {
		log.Info("credentials are sent in URLs, which browsers keep, because the legacy CLI is allowed")
	}
	if b.Observe != nil {
		b.Observe(exporter)
	}
	lease := leader.Lease{Namespace: b.Namespace, Name: backendLease, Identity: b.Identity}
	return group.Run(ctx,
		func(ctx context.Context) error {
			return serveAt(ctx, b.HealthAddress, nil, serve.Limits{}, health(b.Metrics, watched.away))
		},
		func(ctx context.Context) error {
			return serveAt(ctx, b.ListenAddress, tlsConfig, b.connections(), exporter.Handler())
		},
		func(ctx context.Context) error { return b.follow(ctx, keys) },
		sweep,
		watched.run,
		func(ctx context.Context) error { return leader.Run(ctx, client, lease, exporter.Run) },
	)
}

func (b Backend) connections() serve.Limits {
	return serve.Limits{All: cmp.Or(b.Connections, 2000), PerAddress: cmp.Or(b.ConnectionsPerAddress, 100), Free: b.Options.Handshake.TrustedProxies}
}

func health(metrics http.Handler, tell func() string) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /", serve.Health{Tell: tell})
	if metrics != nil {
		mux.Handle("GET /metrics", metrics)
	}
	return mux
}

func (b Backend) withDefaults() Backend {
	b.Namespace = cmp.Or(b.Namespace, backendNamespace)
	b.Identity = cmp.Or(b.Identity, rand.Text())
	b.ListenAddress = cmp.Or(b.ListenAddress, "127.0.0.1:8080")
	b.Options.Version = cmp.Or(b.Options.Version, Version())
	return b
}

// Measured is b with metrics for Prometheus, served at /metrics of HealthAddress, which
// deploy/README.md lists. The hooks that b has go on to be called.
func (b Backend) Measured() Backend {
	m, observe, seen := metrics.NewBackend(cmp.Or(b.Options.Version, Version())), b.Observe, b.IssuerSeen
	b.Metrics, b.Options.Handshake.Hooks = m, m.Hooks(b.Options.Handshake.Hooks)
	b.Observe = func(e *export.Exporter) {
		m.Watch(e.Census)
		if observe != nil {
			observe(e)
		}
	}
	b.IssuerSeen = func(name string, up bool) {
		m.IssuerSeen(name, up)
		if seen != nil {
			seen(name, up)
		}
	}
	return b
}

// seal sets the sealer of sessions: with SessionKeys, or with the keys that k reads.
func (b *Backend) seal(ctx context.Context, k *keyring) (err error) {
	if len(b.SessionKeys) > 0 {
		b.Options.Sealer, err = auth.NewSealer(b.SessionKeys...)
		return err
	}
	if err := k.load(ctx); k.current.Load() == nil {
		return err
	}
	b.Options.Sealer, b.Options.Handshake.Sealer = k.current.Load(), k.current.Load
	return nil
}

// follow keeps the keys up to date that do not stay.
func (b *Backend) follow(ctx context.Context, k *keyring) error {
	if len(b.SessionKeys) > 0 {
		return group.Idle(ctx)
	}
	return k.run(ctx)
}

// devices sets where logins on other devices are kept, and returns what sweeps up.
func (b *Backend) devices(client kubernetes.Interface) func(context.Context) error {
	if b.Options.Handshake.Devices != nil {
		return group.Idle
	}
	store := export.DeviceConfigMaps{Client: client, Namespace: b.Namespace}
	b.Options.Handshake.Devices = store
	return store.Run
}

func (b Backend) exporter(watched *issuers) (*export.Exporter, error) {
	provider, err := b.provider(b.Login, "")
	if err != nil {
		return nil, fmt.Errorf("login: %w", err)
	}
	b.Options.Provider = provider
	watched.add("login", provider)
	for _, i := range b.Issuers {
		provider, err := b.provider(i.Login, i.Name)
		if err != nil {
			return nil, fmt.Errorf("login with %s: %w", i.Name, err)
		}
		watched.add(i.Name, provider)
		b.Options.Handshake.Issuers = append(b.Options.Handshake.Issuers, export.Issuer{Name: i.Name, Title: i.Title, Provider: provider, Users: i.Users})
	}
	if b.Options.Handshake.Machines, err = b.machines(); err != nil {
		return nil, err
	}
	for n, p := range b.Options.Handshake.Machines {
		watched.add(fmt.Sprintf("machines-%d", n+1), p)
	}
	return export.New(b.Config, b.Options)
}

// issuers are the addresses of the further issuers of people, and of those of machines.
func (b Backend) issuers() (further, machines []string) {
	for _, i := range b.Issuers {
		further = append(further, i.Login.Issuer)
	}
	for _, m := range b.Machines {
		machines = append(machines, cmp.Or(m.Issuer, b.Login.Issuer))
	}
	return further, machines
}

func (b Backend) provider(login auth.Config, name string) (p *auth.Provider, err error) {
	if login.RedirectURL == "" {
		if login.RedirectURL, err = export.CallbackURL(b.Options.ExternalURL, name); err != nil {
			return nil, fmt.Errorf("external URL: %w", err)
		}
	}
	return auth.New(login)
}

func (b Backend) machines() (auth.Providers, error) {
	providers := b.Options.Handshake.Machines
	for _, cfg := range b.Machines {
		if cfg.Issuer == "" {
			cfg.Issuer, cfg.HTTPClient = b.Login.Issuer, b.Login.HTTPClient
		}
		cfg.GroupsClaim = cmp.Or(cfg.GroupsClaim, b.Login.GroupsClaim)
		p, err := auth.New(cfg)
		if err != nil {
			return nil, fmt.Errorf("machines: %w", err)
		}
		if len(cfg.Audiences) == 0 {
			return nil, fmt.Errorf("machines of %s: no audience counts", cfg.Issuer)
		}
		providers = append(providers, p)
	}
	return providers, nil
}

// tls returns nil where plain http will do.
func (b Backend) tls() (*tls.Config, error) {
	if b.TLSCertFile == "" && b.TLSKeyFile == "" {
		if !b.PlainHTTP && !isLoopback(b.ListenAddress) {
			return nil, fmt.Errorf("listen on %s: needs a certificate, because it is not a loopback address", b.ListenAddress)
		}
		return nil, nil //nolint:nilnil // no TLS is a configuration as good as another
	}
	var last atomic.Pointer[tls.Certificate] // that counts while new files are being written
	load := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(b.TLSCertFile, b.TLSKeyFile)
		if err == nil {
			last.Store(&cert)
		}
		if good := last.Load(); good != nil {
			return good, nil
		}
		return nil, err
	}
	if _, err := load(nil); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	return &tls.Config{GetCertificate: load, MinVersion: tls.VersionTLS12}, nil
}

func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	return err == nil && redirect.IsLoopback(host)
}

// serveAt serves handler at an address, if there is one.
func serveAt(ctx context.Context, address string, tlsConfig *tls.Config, limits serve.Limits, handler http.Handler) error {
	if address == "" {
		return group.Idle(ctx)
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := serve.Server(handler)
	server.TLSConfig = tlsConfig
	return serve.Run(ctx, server, serve.Limited(listener, limits))
}
