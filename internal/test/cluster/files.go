// SPDX-License-Identifier: Apache-2.0

//go:build unix

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The files of a cluster, relative to its directory, in which its servers run.
const (
	dataDir        = "etcd"
	logsDir        = "logs"
	certFile       = "tls.crt" // self-signed: also the CA of all kubeconfigs
	keyFile        = "tls.key"
	accountFile    = "service-account.key"
	tokenFile      = "token"
	tokensFile     = "tokens.csv"
	kubeconfigFile = "kubeconfig"
)

// writeFiles makes what the servers need in dir. Keys that are there already stay, so that a later cluster in the same
// directory accepts the credentials of the earlier one.
func writeFiles(dir string) error {
	if err := os.MkdirAll(filepath.Join(dir, logsDir), 0o700); err != nil {
		return err
	}
	if _, err := once(dir, accountFile, newKey); err != nil {
		return err
	}
	key, err := once(dir, keyFile, newKey)
	if err != nil {
		return err
	}
	if _, err := once(dir, certFile, func() ([]byte, error) { return newCert(key) }); err != nil {
		return err
	}
	token, err := once(dir, tokenFile, func() ([]byte, error) { return []byte(rand.Text()), nil })
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, tokensFile), fmt.Appendf(nil, "%s,admin,admin,system:masters\n", token), 0o600)
}

// once returns the content of a file, which it makes if the file does not exist.
func once(dir, file string, content func() ([]byte, error)) ([]byte, error) {
	path := filepath.Join(dir, file)
	if data, err := os.ReadFile(path); !errors.Is(err, fs.ErrNotExist) {
		return data, err
	}
	data, err := content()
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	return data, os.WriteFile(path, data, 0o600)
}

func newKey() ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), err
}

// newCert returns a certificate of the API server that vouches for itself.
func newCert(key []byte) ([]byte, error) {
	block, _ := pem.Decode(key)
	if block == nil {
		return nil, errors.New("no PEM in " + keyFile)
	}
	private, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(time.Now().UnixNano()),
		Subject:               pkix.Name{CommonName: "kube-apiserver"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().AddDate(10, 0, 0),
		DNSNames:              []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), err
}

// writeKubeconfig writes the kubeconfig of the administrator, complete in itself, and returns its path.
func writeKubeconfig(dir, name, url string) (path string, err error) {
	ca, err := os.ReadFile(filepath.Join(dir, certFile))
	if err != nil {
		return "", err
	}
	token, err := os.ReadFile(filepath.Join(dir, tokenFile))
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, kubeconfigFile)
	return path, clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: url, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: string(token)}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}, path)
}
