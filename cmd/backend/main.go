// SPDX-License-Identifier: Apache-2.0

// Backend lets people and machines bind APIs of this Control Plane Cluster to their
// App Clusters.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/internal/version"
	"github.com/klutch-go/sdk/klutch"
)

const usage = `Backend lets people and machines bind APIs of this Control Plane Cluster to their
App Clusters. In the cluster:

  backend --external-url https://bind.example.com \
    --external-address https://api.example.com \
    --oidc-issuer-url https://login.example.com --oidc-issuer-client-id klutch \
    --oidc-issuer-client-secret-file /etc/klutch/oidc/client-secret \
    --listen-address :8443 --tls-cert-file tls.crt --tls-key-file tls.key

On a laptop:

  KLUTCH_OIDC_CLIENT_SECRET=... backend --kubeconfig ~/.kube/config \
    --external-url http://127.0.0.1:8080 --listen-address 127.0.0.1:8080 \
    --oidc-issuer-url https://login.example.com --oidc-issuer-client-id klutch

Secrets are read from files or the environment, never from flags.

Further issuers are documents of an --oidc-issuer-file, each with its own client, which
the issuer sends back to /callback/NAME at --external-url. All but the first three
fields may be left out:

  name: partners
  url: https://login.partners.example.com
  clientID: klutch
  clientSecretFile: /etc/klutch/partners/client-secret
  caFile: /etc/klutch/partners/ca.crt
  title: Partners               # what people read; the URL without it
  callbackURL: https://bind.example.com/callback/partners
  scopes: [openid, profile, email, groups]
  groupsClaim: groups
  usernameClaim: sub            # or email
  usernamePrefix: "oidc-partners:"
  groupsPrefix: "oidc-partners:"

`

// Exit codes, as those of kubectl bind.
const (
	exitError = 1
	exitUsage = 2
)

// maxVerbosity keeps client-go from logging the bodies of requests, which hold tokens.
const maxVerbosity = 5

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := exit(run(ctx, os.Args[1:], os.Getenv, os.Stderr), os.Stderr)
	stop()
	os.Exit(code)
}

func exit(err error, stderr io.Writer) int {
	switch {
	case err == nil, errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		_, _ = fmt.Fprintln(stderr, "backend:", err)
		return exitUsage
	default:
		_, _ = fmt.Fprintln(stderr, "backend:", err)
		return exitError
	}
}

func parse(args []string, getenv func(string) string, stderr io.Writer) (*flags, error) {
	f := &flags{backend: klutch.Backend{Identity: getenv("POD_NAME")}}
	fs := flag.NewFlagSet("backend", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.Usage = func() {
		_, _ = io.WriteString(stderr, usage)
		fs.PrintDefaults()
	}
	f.clusterFlags(fs, getenv)
	f.loginFlags(fs)
	f.machineFlags(fs)
	f.handshakeFlags(fs)
	f.limitFlags(fs)
	f.serverFlags(fs)
	switch err := fs.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil, err
	case err != nil:
		return nil, fmt.Errorf("%w: %w", err, errUsage)
	case fs.NArg() > 0:
		return nil, fmt.Errorf("unknown argument %q: %w", fs.Arg(0), errUsage)
	}
	return f, nil
}

func (f *flags) clusterFlags(fs *flag.FlagSet, getenv func(string) string) {
	b := &f.backend
	fs.StringVar(&f.kubeconfig, "kubeconfig", getenv("KUBECONFIG"), "the Control Plane Cluster; empty means the cluster that this runs in")
	fs.StringVar(&b.Namespace, "namespace", cmp.Or(getenv("POD_NAMESPACE"), "klutch-backend"), "namespace of the backend's own Lease and Secret")
	fs.StringVar(&b.Options.Name, "pretty-name", "Klutch", "how the backend calls itself to people")
	fs.StringVar(&b.Options.NamespacePrefix, "namespace-prefix", "cluster", "what the names of tenant namespaces begin with")
	fs.StringVar(&b.Options.APIServer.URL, "external-address", "", "https URL at which App Clusters reach the API server of this cluster; empty means that of the kubeconfig")
	fs.StringVar(&b.Options.APIServer.TLSServerName, "external-server-name", "", "name in the API server's certificate, if it is not that of the URL")
	fs.StringVar(&f.externalCAFile, "external-ca-file", "", "PEM file of the API server's CA for App Clusters; empty means that of the kubeconfig")
	fs.DurationVar(&b.Options.TokenTTL, "token-lifetime", 0, "how long the token of a tenant lives, at least 10m; it is renewed after two thirds of it (default 1h)")
	fs.DurationVar(&b.Options.MaxLoginAge, "max-login-age", 0, "how long after the last login, or bind of a machine, the token of a tenant is renewed: then only a new login helps, kubectl bind rotate; 0 means for ever")
}

func (f *flags) loginFlags(fs *flag.FlagSet) {
	b := &f.backend
	fs.StringVar(&b.Login.Issuer, "oidc-issuer-url", "", "OpenID Connect issuer with which people sign in")
	fs.StringVar(&f.issuerCAFile, "oidc-issuer-ca-file", "", "PEM file of the issuer's CA; empty means the system's roots")
	fs.StringVar(&b.Login.ClientID, "oidc-issuer-client-id", "", "client ID of the backend at the issuer")
	fs.StringVar(&f.clientSecretFile, "oidc-issuer-client-secret-file", "", "file with the client secret; empty means $KLUTCH_OIDC_CLIENT_SECRET")
	fs.StringVar(&b.Login.RedirectURL, "oidc-callback-url", "", "where the issuer sends browsers back; empty means /callback at --external-url")
	fs.StringVar(&b.Login.GroupsClaim, "oidc-groups-claim", "groups", "claim with the groups of a person")
	fs.StringVar(&b.Options.Users.UsernameClaim, "oidc-username-claim", "sub", "claim with the name of a person for RBAC: sub, or email of those whose email_verified is true")
	fs.StringVar(&b.Options.Users.UsernamePrefix, "oidc-username-prefix", "oidc:", "goes before the name of a person; - means nothing")
	fs.StringVar(&b.Options.Users.GroupsPrefix, "oidc-groups-prefix", "oidc:", "goes before the names of groups; - means nothing")
	fs.Func("oidc-scope", "scope to ask for, may be repeated (default openid profile email groups)", appendTo(&b.Login.Scopes))
	fs.Func("oidc-issuer-file", "YAML or JSON file with further issuers, see above, may be repeated", appendTo(&f.issuerFiles))
}

func (f *flags) machineFlags(fs *flag.FlagSet) {
	fs.Func("machine-audience", "audience of access tokens with which machines may bind at /bind-noninteractive, never --oidc-issuer-client-id, may be repeated; none means that only people may bind",
		appendTo(&f.machineAudiences))
	fs.Func("machine-scope", "scope that such a token needs, such as klutch/bind, may be repeated", appendTo(&f.backend.Options.Handshake.MachineScopes))
	fs.Func("machine-claim", "NAME=VALUE of a claim that alone shows that a token is a machine's, such as gty=client-credentials, for issuers that show it neither by the type at+jwt nor by a --machine-scope, client_id or token_use",
		func(value string) (err error) {
			f.machineClaim, err = claim(value)
			return err
		})
	fs.Func("machine-issuer-url", "issuer of such tokens, may be repeated (default --oidc-issuer-url); RBAC knows the machines of one with which no people sign in as URL#SUBJECT", appendTo(&f.machineIssuers))
}

func claim(value string) (c auth.Claim, err error) {
	var ok bool
	if c.Name, c.Value, ok = strings.Cut(value, "="); !ok || c.Name == "" || c.Value == "" {
		err = errors.New("must be NAME=VALUE")
	}
	return c, err
}

func (f *flags) handshakeFlags(fs *flag.FlagSet) {
	h := &f.backend.Options.Handshake
	fs.IntVar(&h.Limits.PerAddress, "requests-per-address", 600, "how many requests a minute one address may send; -1 means any number")
	fs.IntVar(&f.backend.ConnectionsPerAddress, "connections-per-address", 100, "how many connections one address may have open, a /48 of IPv6 eight times as many, a --trusted-proxy any number; -1 means any number")
	fs.IntVar(&f.backend.Connections, "connections", 2000, "how many connections may be open; -1 means any number")
	fs.IntVar(&h.Limits.PerSubject, "binds-per-subject", 60, "how often a minute one person or machine may sign in or bind; -1 means any number")
	fs.BoolVar(&h.LegacyCLI, "allow-legacy-cli", false, "let Klutch's own kubectl-bind in, which gets a credential of ten minutes in a URL of a loopback address")
	fs.Func("adopt-klutch-tenants", "namespaces of tenants of Klutch's backend, separated by commas, that become this backend's when their people bind again, or all; needs deploy/adoption",
		adopted(&f.backend.Options.AdoptKlutchTenants))
	fs.Func("prefixed-apis", "cluster-scoped APIs (PLURAL.GROUP), separated by commas, that are offered where their template says clusterScopedIsolation: Prefixed; tenants read each other's objects of them; needs deploy/prefixed",
		prefixed(&f.backend.Options.PrefixedAPIs))
	fs.Func("klutch-konnectors", "whose konnector may be Klutch's, which lists Secrets in its tenant namespace: named is that of each tenant namespace with the label klutch.anynines.com/klutch-konnector=true, all is every one and needs deploy/klutch-konnectors (default named)",
		func(value string) error {
			if value != "named" && value != "all" {
				return errors.New("must be named or all")
			}
			f.backend.Options.KlutchKonnectors = value == "all"
			return nil
		})
	fs.Func("trusted-proxy", "address or CIDR of a gateway whose X-Forwarded-For is believed, may be repeated", func(value string) error {
		prefix, err := proxy(value)
		h.TrustedProxies = append(h.TrustedProxies, prefix)
		return err
	})
}

// adopted takes a list of namespaces, or "all".
func adopted(to *[]string) func(string) error {
	return func(value string) error {
		for name := range strings.SplitSeq(value, ",") {
			if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
				return fmt.Errorf("%q is not the name of a namespace", name)
			}
			*to = append(*to, name)
		}
		return nil
	}
}

// prefixed takes a list of APIs.
func prefixed(to *[]string) func(string) error {
	return func(value string) error {
		for name := range strings.SplitSeq(value, ",") {
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 || !strings.Contains(name, ".") {
				return fmt.Errorf("%q is not the name of an API, such as continents.example.org", name)
			}
			*to = append(*to, name)
		}
		return nil
	}
}

func proxy(value string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(value); err == nil {
		return netip.PrefixFrom(addr, addr.BitLen()), nil
	}
	prefix, err := netip.ParsePrefix(value)
	return prefix.Masked(), err
}

func (f *flags) serverFlags(fs *flag.FlagSet) {
	b := &f.backend
	fs.StringVar(&b.Options.ExternalURL, "external-url", "", "where browsers and kubectl bind reach this backend, such as https://bind.example.com")
	fs.StringVar(&b.ListenAddress, "listen-address", "127.0.0.1:8080", "where the handshake is served")
	fs.StringVar(&b.TLSCertFile, "tls-cert-file", "", "PEM file of the certificate; read anew for each connection")
	fs.StringVar(&b.TLSKeyFile, "tls-key-file", "", "PEM file of its key")
	fs.BoolVar(&b.PlainHTTP, "plain-http", false, "listen without TLS, behind a gateway that ends it")
	fs.StringVar(&b.HealthAddress, "health-address", "127.0.0.1:8081", "where /livez, /readyz, /healthz and /metrics are served; empty means nowhere")
	fs.Func("session-key-file", "file with 32 random bytes that seal cookies, may be repeated: the first seals, all open; none means a Secret that is made when missing",
		appendTo(&f.sessionKeyFiles))
	fs.DurationVar(&b.SessionKeyLife, "session-key-lifetime", 0, "how old the key in that Secret gets before there is a new one; the old one opens for two more hours (default 168h, -1s means for good)")
	fs.IntVar(&f.verbosity, "v", 0, "log level: 0 is what an operator acts on, 4 shows traffic")
	fs.BoolVar(&f.version, "version", false, "print the version and exit")
}

func run(ctx context.Context, args []string, getenv func(string) string, stderr io.Writer) error {
	f, err := parse(args, getenv, stderr)
	if err != nil {
		return err
	}
	if f.version {
		fmt.Println(version.Text())
		return nil
	}
	if err := f.complete(getenv); err != nil {
		return err
	}
	log := logr.FromSlogHandler(slog.NewJSONHandler(stderr, &slog.HandlerOptions{Level: slog.Level(-min(f.verbosity, maxVerbosity))}))
	return f.backend.Measured().Run(logr.NewContext(ctx, log))
}

// complete checks that required flags are set and reads the files that flags name.
func (f *flags) complete(getenv func(string) string) (err error) {
	b := &f.backend
	for name, value := range map[string]string{
		"external-url": b.Options.ExternalURL, "oidc-issuer-url": b.Login.Issuer, "oidc-issuer-client-id": b.Login.ClientID,
	} {
		if value == "" {
			return fmt.Errorf("--%s is required: %w", name, errUsage)
		}
	}
	b.Login.ClientSecret = getenv("KLUTCH_OIDC_CLIENT_SECRET")
	if err := f.acceptMachines(); err != nil {
		return err
	}
	return errors.Join(
		read(f.clientSecretFile, func(data []byte) error {
			b.Login.ClientSecret = strings.TrimSpace(string(data))
			return nil
		}),
		read(f.externalCAFile, func(data []byte) error {
			b.Options.APIServer.CAData = data
			return nil
		}),
		read(f.issuerCAFile, func(data []byte) (err error) {
			b.Login.HTTPClient, err = trusting(data)
			return err
		}),
		f.readIssuers(),
		f.readSessionKeys(),
		f.connect(),
	)
}

func (f *flags) acceptMachines() error {
	if len(f.machineAudiences) == 0 {
		if len(f.machineIssuers) > 0 || len(f.backend.Options.Handshake.MachineScopes) > 0 || f.machineClaim.Name != "" {
			return fmt.Errorf("--machine-audience is required for machines: %w", errUsage)
		}
		return nil
	}
	if len(f.machineIssuers) == 0 {
		f.machineIssuers = []string{""} // that of the login
	}
	for _, issuer := range f.machineIssuers {
		f.backend.Machines = append(f.backend.Machines, auth.Config{Issuer: issuer, Audiences: f.machineAudiences, MachineClaim: f.machineClaim})
	}
	return nil
}

func (f *flags) readSessionKeys() error {
	var errs []error
	for _, file := range f.sessionKeyFiles {
		errs = append(errs, read(file, func(data []byte) error {
			f.backend.SessionKeys = append(f.backend.SessionKeys, data)
			return nil
		}))
	}
	return errors.Join(errs...)
}

func (f *flags) connect() (err error) {
	if f.kubeconfig == "" {
		f.backend.Config, err = rest.InClusterConfig()
	} else {
		f.backend.Config, err = clientcmd.BuildConfigFromFlags("", f.kubeconfig)
	}
	return err
}
