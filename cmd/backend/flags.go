// SPDX-License-Identifier: Apache-2.0

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"os"

	"github.com/klutch-go/sdk/auth"
	"github.com/klutch-go/sdk/klutch"
)

// flags are what cannot be written straight into the backend.
type flags struct {
	kubeconfig, clientSecretFile, issuerCAFile, externalCAFile string
	sessionKeyFiles, machineIssuers, machineAudiences          []string
	machineClaim                                               auth.Claim
	issuerFiles                                                []string
	verbosity                                                  int
	version                                                    bool
	backend                                                    klutch.Backend
}

// errUsage says that the flags are wrong.
var errUsage = errors.New("see backend --help")

func appendTo(list *[]string) func(string) error {
	return func(value string) error {
		*list = append(*list, value)
		return nil
	}
}

// read does nothing without a name.
func read(file string, use func([]byte) error) error {
	if file == "" {
		return nil
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	return use(data)
}

func trusting(pem []byte) (*http.Client, error) {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, errors.New("the CA file of the issuer holds no certificate")
	}
	return &http.Client{Transport: &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
	}}, nil
}
